"""The `claude` program (Claude Code 2.1.329): `claude -p`."""

import re
import time
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
    Cost,
    Count,
    Flag,
    Text,
    Words,
    described,
    fields,
    summarized,
)
from orchestrator.agents.output.no_report import HTTP_REASONS, contradicted, unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import find_report, json_lines, parse_object
from orchestrator.engine.images.names import worker_image
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

_COMMAND: Final = (
    "claude",
    "--print",
    # With `--verbose` alone does it print every message as it comes.
    "--output-format=stream-json",
    "--verbose",
    # The container is the sandbox. Without it every change is denied, and the end a success.
    "--dangerously-skip-permissions",
)
_ENVIRONMENT: Final = {
    # No updates, no telemetry: a worker reaches the model and nothing else by itself.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # Its own 10 make it ask two minutes long with a wrong key, and say nothing.
    "CLAUDE_CODE_MAX_RETRIES": "4",
}
_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
# Clouds whose credentials are those of a whole account, and not handed on unless `--env` does.
_CLOUDS: Final = (
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)
_INHERITED: Final = (
    *_KEYS,
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
)
_VERSION_PATH: Final = "/v1"
_REPORT_KEYS: Final = frozenset({"is_error", "subtype", "num_turns"})
_MARKS: Final = (b'"assistant"', b'"rate_limit_event"')
_SYNTHETIC: Final = "<synthetic>"
"""The model of a message that no model wrote: it shows an error of the API."""

_LIMITS: Final = {
    "error_max_turns": Reason.MAX_STEPS,
    "error_max_budget_usd": Reason.BUDGET,
}
# Errors without an HTTP status: nothing was asked of the API.
_PHRASES: Final = {
    "Not logged in": Reason.AUTH,
    "Invalid API key": Reason.AUTH,
    "Prompt is too long": Reason.CONTEXT_FULL,
}
_ACCOUNT_LIMIT: Final = re.compile(
    r"You've hit your (?:[\w-]+ ){0,3}limit\b|(?:Claude AI usage|[\w-]+) limit reached\b"
)
"""That of a subscription, in its own words: there is no HTTP status then."""
_REMEMBERED: Final = 256
"""Messages whose lines may come between one another's."""


class _Usage(Claims):
    input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_read_input_tokens: Count = None
    output_tokens: Count = None


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None


class _Report(Claims):
    is_error: Flag
    subtype: Text
    result: Words = None
    errors: Annotated[Text, BeforeValidator(_first)] = None
    api_error_status: Count = None
    total_cost_usd: Cost = None
    usage: Annotated[_Usage, BeforeValidator(fields)] = Field(default_factory=_Usage)


class ClaudeAgent:
    """Runs `claude -p` and reads the last line of its stream of JSON."""

    name = "claude"
    image = worker_image("claude")
    inherited_env = _INHERITED
    ignored_files = (".claude/settings.local.json",)

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """Name the key, unless there is any way to log in."""
        enough = (*_KEYS, *_CLOUDS)
        return None if any(environment.get(name) for name in enough) else _KEYS[0]

    def unsupported(self, settings: AgentSettings) -> None:
        """Keep everything: a profile is one of its agents, and the limits are its own options."""

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line; the task stands behind `--`, so it may begin with a dash."""
        options = {
            "--agent": settings.chosen_profile,
            "--model": spec.model,
            "--max-turns": str(settings.max_steps),
            "--max-budget-usd": None if settings.budget is None else str(settings.budget),
        }
        given = (word for name, value in options.items() if value for word in (name, value))
        command = (*_COMMAND, *given)
        task = spec.task
        return AgentCommand(
            # Without a task on its command line it reads one from stdin.
            argv=on_stdin(task, command) if is_long(task) else (*command, "--", task),
            env=_ENVIRONMENT | _api_environment(settings.api_base),
        )

    def progress_reader(self) -> ProgressReader:
        """Count the answers of the model, and their tokens."""
        return _Steps().read

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Judge the report, or the lack of one."""
        counted = _Steps()
        for event in json_lines(output.stdout, *_MARKS):
            counted.add(event)
        found = find_report(output.stdout, _REPORT_KEYS)
        if found is None:
            return unreported(output, exit_status.exit_code, steps=counted.number)
        report = _Report.model_validate(found)
        status, reason, said = _verdict(report, exit_status.exit_code)
        return AgentOutcome(
            status=status,
            reason=reason,
            message=described(said),
            # Not its `num_turns`: that counts tools beside one another, and errors of the API.
            steps=counted.number,
            cost=report.total_cost_usd,
            tokens=_tokens(report.usage),
            summary=summarized(report.result),
            retry_after=counted.retry_after or retry_after(reason, said),
        )


class _Refusal(Claims):
    status: Text = None
    resetsAt: Count = None


class _Steps:
    """Counts the model's answers; one with several blocks comes in as many lines."""

    def __init__(self) -> None:
        self.number = 0
        self.tokens = 0
        self._last: object = None
        self._seen: deque[object] = deque(maxlen=_REMEMBERED)
        self._resets_at: int | None = None

    @property
    def retry_after(self) -> float | None:
        """Seconds until a subscription is good again, if it was refused its last request."""
        return None if self._resets_at is None else max(0.0, self._resets_at - time.time())

    def read(self, line: str) -> AgentProgress | None:
        """Take in a line of stdout."""
        if not self.add(parse_object(line) or {}):
            return None
        return AgentProgress(steps=self.number, tokens=self.tokens or None)

    def add(self, event: Mapping[str, object]) -> bool:
        """Take in an event; say whether there is more than before."""
        message = event.get("message")
        if event.get("type") == "rate_limit_event":
            refusal = _Refusal.model_validate(fields(event.get("rate_limit_info")))
            self._resets_at = refusal.resetsAt if refusal.status == "rejected" else None
        if event.get("type") != "assistant" or not isinstance(message, dict):
            return False
        before = self.tokens
        if message.get("id") not in self._seen:
            self._seen.append(message.get("id"))
            self.tokens += _tokens(_Usage.model_validate(fields(message.get("usage")))) or 0
        return self._is_step(event, message) or self.tokens > before

    def _is_step(self, event: Mapping[str, object], message: Mapping[str, object]) -> bool:
        # What its helpers are answered is no turn of its own.
        foreign = event.get("parent_tool_use_id") or message.get("model") == _SYNTHETIC
        if foreign or message.get("id") == self._last:
            return False
        self._last = message.get("id")
        self.number += 1
        return True


def _api_environment(api_base: str | None) -> dict[str, str]:
    if api_base is None:
        return {}
    # It adds the version by itself.
    return {"ANTHROPIC_BASE_URL": api_base.rstrip("/").removesuffix(_VERSION_PATH)}


def _verdict(report: _Report, exit_code: int) -> tuple[Status, Reason | None, str | None]:
    """Go by `is_error`: `subtype` says success of an error of the API."""
    said = report.result or report.errors
    if report.is_error is False:
        return (Status.SUCCESS, None, said) if exit_code == 0 else contradicted(exit_code)
    if report.subtype in _LIMITS:
        return Status.PARTIAL, _LIMITS[report.subtype], said
    return Status.FAILED, _reason(report), said


def _reason(report: _Report) -> Reason:
    said = report.result or ""
    phrases = (_PHRASES[phrase] for phrase in _PHRASES if said.startswith(phrase))
    if _ACCOUNT_LIMIT.match(said):
        return Reason.RATE_LIMITED
    by_status = HTTP_REASONS.get(report.api_error_status or 0)
    return by_status or next(phrases, Reason.AGENT_ERROR)


def _tokens(usage: _Usage) -> int | None:
    # It says 0 where it stopped in the middle of an answer that it was billed for.
    return sum(count or 0 for count in usage.model_dump().values()) or None
