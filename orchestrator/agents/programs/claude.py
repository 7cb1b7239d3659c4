"""Adapter of the `claude` program (Claude Code 2.1.329), started as `claude -p`."""

import re
import time
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
    Session,
    SessionFiles,
    unsupported_settings,
)
from orchestrator.agents.output.fields import (
    Claims,
    Cost,
    Count,
    Flag,
    Text,
    Words,
    as_line,
    as_summary,
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

_COMMAND: Final = (
    "claude",
    "--print",
    # `claude` prints each message immediately only with `--verbose`.
    "--output-format=stream-json",
    "--verbose",
    # The container is the sandbox. Without this option `claude` denies every change, and reports
    # success.
    "--dangerously-skip-permissions",
)
_ENVIRONMENT: Final = {
    # No updates and no telemetry: the worker should contact only the model's API.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # With its default of 10 retries, `claude` tries a wrong key silently for two minutes.
    "CLAUDE_CODE_MAX_RETRIES": "4",
}
_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
# Cloud providers: their credentials cover a whole account and are passed only by `--env`.
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
"""Model name of messages that `claude` itself creates to report errors of the API."""

_LIMITS: Final = {
    "error_max_turns": Reason.MAX_STEPS,
    "error_max_budget_usd": Reason.BUDGET,
}
# Errors without an HTTP status, because no request was sent.
_PHRASES: Final = {
    "Not logged in": Reason.AUTH,
    "Invalid API key": Reason.AUTH,
    "Prompt is too long": Reason.CONTEXT_FULL,
}
_ACCOUNT_LIMIT: Final = re.compile(
    r"You've hit your (?:[\w-]+ ){0,3}limit\b|(?:Claude AI usage|[\w-]+) limit reached\b"
)
"""Pattern of the message about an exhausted subscription; no HTTP status comes with it."""
_REMEMBERED: Final = 256
"""Maximum number of recent messages that are remembered, since lines of several messages may be
interleaved.
"""


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
    """Runs `claude -p` and parses the last line of its JSON stream."""

    name = "claude"
    image = worker_image("claude")
    inherited_env = _INHERITED
    ignored_files = (".claude/settings.local.json",)
    session_files = SessionFiles(
        kept=("projects/-workspace/{id}.jsonl", "projects/-workspace/{id}/tool-results/*.txt"),
        id=UUID,
        chosen=True,
    )

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """Return the name of the API key's variable, unless any credential is set."""
        enough = (*_KEYS, *_CLOUDS)
        return None if any(environment.get(name) for name in enough) else _KEYS[0]

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Accept profiles and all limits, for which the program has options."""
        return unsupported_settings(settings)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line; the task follows `--`, so it may start with a dash."""
        options = {
            "--agent": settings.chosen_profile,
            "--model": spec.model,
            "--max-turns": str(settings.max_steps),
            "--max-budget-usd": None if settings.budget is None else str(settings.budget),
        }
        given = (word for name, value in options.items() if value for word in (name, value))
        command = continuing(
            "claude", settings.session, (*_COMMAND, *given, *_session_options(settings.session))
        )
        task = spec.prompt
        env = _ENVIRONMENT | ({} if settings.session is None else {"CLAUDE_CONFIG_DIR": SESSION})
        if settings.api_base is not None:
            # `claude` appends the version itself.
            env["ANTHROPIC_BASE_URL"] = settings.api_base.rstrip("/").removesuffix(_VERSION_PATH)
        return AgentCommand(
            # Without a task on its command line, `claude` reads it from stdin.
            argv=on_stdin(task, command) if is_long(task) else (*command, "--", task),
            env=env,
        )

    def session_id(self, output: AgentOutput) -> str | None:
        """Return the id of the session in the first event."""
        return first_text(output, "session_id", event="system")

    def progress_reader(self) -> ProgressReader:
        """Return a reader of the program's output that counts answers and tokens."""
        return _StepCounter().read

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return the outcome from the program's report, or else from its exit code and stderr."""
        counted = _StepCounter()
        for event in json_lines(output.stdout, *_MARKS):
            counted.add(event)
        fields_read = find_report(output.stdout, _REPORT_KEYS)
        if fields_read is None:
            return unreported(output, exit_status.exit_code, steps=counted.number)
        report = _Report.model_validate(fields_read)
        status, reason, message = _verdict(report, exit_status.exit_code)
        return AgentOutcome(
            status=status,
            reason=reason,
            message=as_line(message),
            # `num_turns` also counts parallel tool calls and errors of the API.
            steps=counted.number,
            cost=report.total_cost_usd,
            tokens=_tokens(report.usage),
            summary=as_summary(report.result),
            retry_after=counted.retry_after or retry_after(reason, message),
        )


def _session_options(session: Session | None) -> tuple[str, ...]:
    if session is None or session.id is None:
        return ()
    if not session.continued:
        return ("--session-id", session.id)
    # The file of a session contains a system prompt, which the worker may have changed.
    # protection: system-prompt-of-session-is-not-sent
    return ("--system-prompt-snapshot", "off", "--resume", session.id)


class _Refusal(Claims):
    status: Text = None
    resetsAt: Count = None


class _StepCounter:
    """Counts the model's answers: one answer may arrive as several lines of output."""

    def __init__(self) -> None:
        self.number = 0
        self.tokens = 0
        self._last: object = None
        self._seen: deque[object] = deque(maxlen=_REMEMBERED)
        self._resets_at: int | None = None

    @property
    def retry_after(self) -> float | None:
        """Return the seconds until a used-up subscription resets; None if it is not used up."""
        return None if self._resets_at is None else max(0.0, self._resets_at - time.time())

    def read(self, line: str) -> AgentProgress | None:
        """Process a line of stdout; return the progress if it changed, else None."""
        if not self.add(parse_object(line) or {}):
            return None
        return AgentProgress(steps=self.number, tokens=self.tokens or None)

    def add(self, event: Mapping[str, object]) -> bool:
        """Process an event; return whether steps or tokens increased."""
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
        # Answers to subagents are not steps of the agent itself.
        foreign = event.get("parent_tool_use_id") or message.get("model") == _SYNTHETIC
        if foreign or message.get("id") == self._last:
            return self.tokens > before
        self._last = message.get("id")
        self.number += 1
        return True


def _verdict(report: _Report, exit_code: int) -> tuple[Status, Reason | None, str | None]:
    """Return status, reason and message. A failure is decided by the report's `is_error` alone.

    The report's `subtype` is no help: it is "success" even after an error of the API.
    """
    message = report.result or report.errors
    if report.is_error is False:
        return (Status.SUCCESS, None, message) if exit_code == 0 else contradicted(exit_code)
    if report.subtype in _LIMITS:
        return Status.PARTIAL, _LIMITS[report.subtype], message
    text = report.result or ""
    if _ACCOUNT_LIMIT.match(text):
        return Status.FAILED, Reason.RATE_LIMITED, message
    phrases = (_PHRASES[phrase] for phrase in _PHRASES if text.startswith(phrase))
    by_status = HTTP_REASONS.get(report.api_error_status or 0)
    return Status.FAILED, by_status or next(phrases, Reason.AGENT_ERROR), message


def _tokens(usage: _Usage) -> int | None:
    # `claude` reports 0 tokens if it was stopped during an answer, although the answer is billed.
    return sum(count or 0 for count in usage.model_dump().values()) or None
