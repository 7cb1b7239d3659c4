"""The `codex` program (Codex CLI 0.169.0): `codex exec`."""

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from orchestrator.agents.base import (
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
    ProgressReader,
)
from orchestrator.agents.long_task import is_long, on_stdin
from orchestrator.agents.output.fields import (
    Claims,
    Count,
    Text,
    describe_exit,
    described,
    fields,
    summarized,
)
from orchestrator.agents.output.no_report import HTTP_REASONS, contradicted, unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import find_report, json_lines, parse_object
from orchestrator.agents.unsupported import unsupported_settings
from orchestrator.engine.images.names import worker_image
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

# Of the two names of its key it takes the first; whoever has a server of their own may have none.
_WITH_KEY: Final = (
    "sh",
    "-c",
    'export CODEX_API_KEY="${CODEX_API_KEY:-${OPENAI_API_KEY:-none}}"; exec "$@"',
    "sh",
)
_COMMAND: Final = (
    "codex",
    "exec",
    "--json",
    # The container is the sandbox: there its own one lets no command run, and says success.
    "--dangerously-bypass-approvals-and-sandbox",
    "--skip-git-repo-check",
)
_OPENAI: Final = "https://api.openai.com/v1"
_PROVIDER: Final = "orchestrator"
# Of the built-in provider neither the address nor the number of retries can be set.
_PROVIDER_SETTINGS: Final = {
    "wire_api": "responses",
    "env_key": "CODEX_API_KEY",
    # They multiply: with its own 4 and 5 it asks a broken server for minutes.
    "request_max_retries": 2,
    "stream_max_retries": 3,
    # Seven attempts before it falls back to plain HTTPS, on every server that has none.
    "supports_websockets": False,
}
_SETTINGS: Final = {
    "model_provider": _PROVIDER,
    # Without it, it waits for a network for ever.
    "features.unbounded_connection_retries": False,
    "analytics.enabled": False,
}
_KEYS: Final = ("OPENAI_API_KEY", "CODEX_API_KEY")

_ENDS: Final = (frozenset({"type", "usage"}), frozenset({"type", "error"}))
_ITEM_MARK: Final = b'"item.'
_WORDS: Final = frozenset({"agent_message", "reasoning", "error", "todo_list"})
"""Kinds of items that do nothing; every other one is a step."""
_REMEMBERED: Final = 256
"""Items that may be in work at one time."""

_HTTP_STATUS: Final = re.compile(r"(?:unexpected|last) status:? (\d{3})\b")
_PHRASES: Final = {
    "Missing environment variable": Reason.AUTH,
    "usage limit": Reason.RATE_LIMITED,
    "Quota exceeded": Reason.RATE_LIMITED,
    "context window": Reason.CONTEXT_FULL,
}


class _Usage(Claims):
    input_tokens: Count = None
    output_tokens: Count = None


class _Error(Claims):
    message: Text = None


class _End(Claims):
    type: Text
    usage: Annotated[_Usage, BeforeValidator(fields)] = Field(default_factory=_Usage)
    error: Annotated[_Error, BeforeValidator(fields)] = Field(default_factory=_Error)


class CodexAgent:
    """Runs `codex exec --json` and reads how its turn ended."""

    name = "codex"
    image = worker_image("codex")
    inherited_env = _KEYS
    ignored_files: tuple[str, ...] = ()

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """Name the key, if it is there under neither of its names."""
        return None if any(environment.get(name) for name in _KEYS) else _KEYS[0]

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Keep no budget, for want of prices, and no tokens; the steps are counted from outside."""
        return unsupported_settings(settings, profiles=False, cost=False, tokens=False)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line; the task stands behind `--`, so it may begin with a dash."""
        provider = _server(settings.api_base) | _PROVIDER_SETTINGS
        wanted = _SETTINGS | {
            f"model_providers.{_PROVIDER}.{name}": value for name, value in provider.items()
        }
        # JSON's strings, numbers and booleans are TOML's too.
        given = (word for name in wanted for word in ("-c", f"{name}={json.dumps(wanted[name])}"))
        model = () if spec.model is None else ("--model", spec.model)
        command = (*_WITH_KEY, *_COMMAND, *given, *model)
        task = spec.task
        # `-` is the task on stdin.
        argv = on_stdin(task, (*command, "-")) if is_long(task) else (*command, "--", task)
        return AgentCommand(argv=argv)

    def progress_reader(self) -> ProgressReader:
        """Count what it does."""
        return _Steps().read

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Judge the end of its turn, or the lack of one."""
        counted, said = _Steps(), None
        for event in json_lines(output.stdout, _ITEM_MARK):
            counted.add(event)
            said = _words(event) or said
        found = find_report(output.stdout, *_ENDS)
        if found is None:
            return unreported(output, exit_status.exit_code, steps=counted.number)
        end = _End.model_validate(found)
        status, reason, message = _verdict(end, said, exit_status.exit_code)
        return AgentOutcome(
            status=status,
            reason=reason,
            message=described(message),
            steps=counted.number,
            tokens=_tokens(end.usage),
            summary=summarized(said),
            retry_after=retry_after(reason, message),
        )


class _Steps:
    """Counts commands, changes and calls of tools, each from when it begins."""

    def __init__(self) -> None:
        self.number = 0
        self._seen: deque[object] = deque(maxlen=_REMEMBERED)

    def read(self, line: str) -> AgentProgress | None:
        """Take in a line of stdout."""
        return AgentProgress(steps=self.number) if self.add(parse_object(line) or {}) else None

    def add(self, event: Mapping[str, object]) -> bool:
        """Take in an event; say whether it is another step."""
        item = event.get("item")
        if event.get("type") not in ("item.started", "item.completed"):
            return False
        if not isinstance(item, dict) or item.get("type") in _WORDS:
            return False
        if item.get("id") in self._seen:
            return False
        self._seen.append(item.get("id"))
        self.number += 1
        return True


def _server(api_base: str | None) -> dict[str, object]:
    if api_base is None:
        return {"name": "OpenAI", "base_url": _OPENAI}
    # By the name of OpenAI it would ask a server for what only OpenAI's has.
    return {"name": _PROVIDER, "base_url": api_base}


def _words(event: Mapping[str, object]) -> str | None:
    """Return what the model says to people."""
    item = event.get("item")
    if not isinstance(item, dict) or item.get("type") != "agent_message":
        return None
    text = item.get("text")
    return text if isinstance(text, str) else None


def _verdict(
    end: _End, said: str | None, exit_code: int
) -> tuple[Status, Reason | None, str | None]:
    if end.type == "turn.completed":
        if exit_code == 0:
            return Status.SUCCESS, None, said
        return contradicted(exit_code)
    message = end.error.message or describe_exit(exit_code)
    return Status.FAILED, _reason(message), message


def _reason(message: str) -> Reason:
    status = _HTTP_STATUS.search(message)
    if status is not None:
        return HTTP_REASONS.get(int(status[1]), Reason.AGENT_ERROR)
    phrases = (_PHRASES[phrase] for phrase in _PHRASES if phrase in message)
    return next(phrases, Reason.AGENT_ERROR)


def _tokens(usage: _Usage) -> int | None:
    counts = [count for count in (usage.input_tokens, usage.output_tokens) if count is not None]
    return sum(counts) if counts else None
