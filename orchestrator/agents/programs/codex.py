"""Adapter of the `codex` program (Codex CLI 0.169.0), started as `codex exec`."""

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from orchestrator.agents.base import (
    SESSION,
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
    ProgressReader,
    SessionFiles,
    unsupported_settings,
)
from orchestrator.agents.output.fields import (
    Claims,
    Count,
    Text,
    as_line,
    as_summary,
    describe_exit,
    fields,
)
from orchestrator.agents.output.no_report import HTTP_REASONS, contradicted, unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import find_report, json_lines, parse_object
from orchestrator.agents.sessions import UUID, continuing, first_text
from orchestrator.agents.start import is_long, on_stdin
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.images.names import worker_image
from orchestrator.engine.interface.protocol import ExitStatus

_BASE_URL: Final = "OPENAI_BASE_URL"
_OPENAI: Final = "https://api.openai.com/v1"
_PROVIDER: Final = "orchestrator"
# Use the first key that is set. A custom server may not need one, but `codex` requires a value. The
# program ignores the variable with the base URL, so the settings of OpenAI's server are replaced.
_START: Final = """\
export CODEX_API_KEY="${CODEX_API_KEY:-${OPENAI_API_KEY:-none}}"
if [ -n "$OPENAI_BASE_URL" ]; then
  for word; do
    shift
    case $word in
      'model_providers.orchestrator.base_url="https://api.openai.com/v1"')
        word="${word%%=*}=\\"$OPENAI_BASE_URL\\"" ;;
      'model_providers.orchestrator.name="OpenAI"')
        word="${word%%=*}=\\"orchestrator\\"" ;;
    esac
    set -- "$@" "$word"
  done
fi
exec "$@"
"""
_COMMAND: Final = (
    "codex",
    "exec",
    "--json",
    # The container is the sandbox. In it, codex's own sandbox blocks every command, and codex still
    # reports success.
    "--dangerously-bypass-approvals-and-sandbox",
    "--skip-git-repo-check",
)
# The URL and the retries of the built-in provider cannot be configured.
_PROVIDER_SETTINGS: Final = {
    "wire_api": "responses",
    "env_key": "CODEX_API_KEY",
    # The two multiply: with the defaults of 4 and 5, a failing server is retried for minutes.
    "request_max_retries": 2,
    "stream_max_retries": 3,
    # With WebSockets enabled, codex tries them seven times before it falls back to HTTPS.
    "supports_websockets": False,
}
_SETTINGS: Final = {
    "model_provider": _PROVIDER,
    # By default, codex waits for a network without limit.
    "features.unbounded_connection_retries": False,
    "analytics.enabled": False,
}
_KEYS: Final = ("OPENAI_API_KEY", "CODEX_API_KEY")

_ENDS: Final = (frozenset({"type", "usage"}), frozenset({"type", "error"}))
_ITEM_MARK: Final = b'"item.'
_WORDS: Final = frozenset({"agent_message", "reasoning", "error", "todo_list"})
"""Types of output items that contain only text or a plan, so that they do not count as steps."""
_REMEMBERED: Final = 256
"""Maximum number of items in progress that are remembered."""

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
    """Runs `codex exec --json` and parses the last event that it prints."""

    name = "codex"
    image = worker_image("codex")
    inherited_env = (*_KEYS, _BASE_URL)
    ignored_files: tuple[str, ...] = ()
    session_files = SessionFiles(kept=("sessions/*/*/*/rollout-*-{id}.jsonl",), id=UUID)

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """Return the name of the API key's variable if none of the variables for the key is set."""
        return None if any(environment.get(name) for name in _KEYS) else _KEYS[0]

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Reject profiles, budgets and token limits; `codex` reports no cost while it runs."""
        return unsupported_settings(settings, profiles=False, cost=False, tokens=False)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line; the task follows `--`, so it may start with a dash."""
        # With the name OpenAI, codex would use features that only OpenAI's servers have.
        server: dict[str, object] = (
            {"name": "OpenAI", "base_url": _OPENAI}
            if settings.api_base is None
            else {"name": _PROVIDER, "base_url": settings.api_base}
        )
        provider = server | _PROVIDER_SETTINGS
        # The broker refuses a search by the provider, which has a price of its own, under a budget.
        own = {"web_search": "disabled"} if settings.uses_broker else {}
        settings_of_codex = (
            _SETTINGS
            | own
            | {f"model_providers.{_PROVIDER}.{name}": value for name, value in provider.items()}
        )
        # JSON strings, numbers and booleans are valid TOML.
        given = (
            word
            for name, value in settings_of_codex.items()
            for word in ("-c", f"{name}={json.dumps(value)}")
        )
        model = () if spec.model is None else ("--model", spec.model)
        session, task = settings.session, spec.prompt
        again = session.id if session is not None and session.continued else None
        # An id in another form would begin a new session. The id stands directly before the text.
        words = _COMMAND if again is None else (*_COMMAND[:2], "resume", *_COMMAND[2:])
        named = () if again is None else (again,)
        command = continuing("codex", session, ("sh", "-c", _START, "sh", *words, *given, *model))
        # `-` makes codex read the task from stdin.
        argv = (
            on_stdin(task, (*command, *named, "-"))
            if is_long(task)
            else (*command, "--", *named, task)
        )
        return AgentCommand(argv=argv, env={} if session is None else {"CODEX_HOME": SESSION})

    def session_id(self, output: AgentOutput) -> str | None:
        """Return the id of the thread in the first event."""
        return first_text(output, "thread_id", event="thread.started")

    def progress_reader(self) -> ProgressReader:
        """Return a reader of the program's output that counts its steps."""
        return _StepCounter().read

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return the outcome by the program's last event, or else by exit code and stderr."""
        counted, last_message = _StepCounter(), None
        for event in json_lines(output.stdout, _ITEM_MARK):
            counted.add(event)
            last_message = _words(event) or last_message
        fields_read = find_report(output.stdout, *_ENDS)
        if fields_read is None:
            return unreported(output, exit_status.exit_code, steps=counted.number)
        end = _End.model_validate(fields_read)
        status, reason, message = _verdict(end, last_message, exit_status.exit_code)
        used = (end.usage.input_tokens, end.usage.output_tokens)
        counts = [count for count in used if count is not None]
        return AgentOutcome(
            status=status,
            reason=reason,
            message=as_line(message),
            steps=counted.number,
            tokens=sum(counts) if counts else None,
            summary=as_summary(last_message),
            retry_after=retry_after(reason, message),
        )


class _StepCounter:
    """Counts commands, file changes and tool calls, each when it starts."""

    def __init__(self) -> None:
        self.number = 0
        self._seen: deque[object] = deque(maxlen=_REMEMBERED)

    def read(self, line: str) -> AgentProgress | None:
        """Process a line of stdout; return the progress if it changed, else None."""
        return AgentProgress(steps=self.number) if self.add(parse_object(line) or {}) else None

    def add(self, event: Mapping[str, object]) -> bool:
        """Process an event; return whether it starts a new step."""
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


def _words(event: Mapping[str, object]) -> str | None:
    """Return the text of an event that is a message to the user; None for any other event."""
    item = event.get("item")
    if not isinstance(item, dict) or item.get("type") != "agent_message":
        return None
    text = item.get("text")
    return text if isinstance(text, str) else None


def _verdict(
    end: _End, last_message: str | None, exit_code: int
) -> tuple[Status, Reason | None, str | None]:
    if end.type == "turn.completed":
        if exit_code == 0:
            return Status.SUCCESS, None, last_message
        return contradicted(exit_code)
    message = end.error.message or describe_exit(exit_code)
    status = _HTTP_STATUS.search(message)
    if status is not None:
        reason = HTTP_REASONS.get(int(status[1]), Reason.AGENT_ERROR)
    else:
        phrases = (_PHRASES[phrase] for phrase in _PHRASES if phrase in message)
        reason = next(phrases, Reason.AGENT_ERROR)
    return Status.FAILED, reason, message
