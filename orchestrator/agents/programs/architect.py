"""Adapter of the `architect` program (architect-ai-cli 1.1.0), started as `architect run`."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from orchestrator.agents.base import (
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentSettings,
    ProgressReader,
    unsupported_settings,
)
from orchestrator.agents.output.fields import (
    Claims,
    Cost,
    Count,
    Text,
    Words,
    as_line,
    as_summary,
    describe_exit,
    fields,
)
from orchestrator.agents.output.no_report import contradicted
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import find_report, last_line, text_tail
from orchestrator.agents.programs import litellm
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.images.names import DEFAULT_IMAGE
from orchestrator.engine.interface.protocol import ExitStatus

_REPORT_KEYS: Final = frozenset({"status", "stop_reason", "steps"})
_INHERITED: Final = (
    "ARCHITECT_MODEL",
    "ARCHITECT_API_BASE",
    "ARCHITECT_LANGUAGE",
    *litellm.INHERITED,
)

_CLOSING_TIME: Final = 30.0
"""Seconds that `architect` may run beyond its own timeout: its clock starts late, and it makes one
last model call.
"""
_INTERRUPTED: Final = (130, 143)
_SIGNALLED: Final = 128

_STOPPED: Final = {
    "max_steps": (Status.PARTIAL, Reason.MAX_STEPS),
    "budget_exceeded": (Status.PARTIAL, Reason.BUDGET),
    "context_full": (Status.PARTIAL, Reason.CONTEXT_FULL),
    "timeout": (Status.TIMEOUT, Reason.TIMEOUT),
    "user_interrupt": (Status.PARTIAL, Reason.CANCELLED),
    "llm_error": (Status.FAILED, Reason.AGENT_ERROR),
}
# Exceptions of litellm, which the program prints with a prefix. Its exit code 4 is not reliable: it
# is used whenever "auth" occurs anywhere in a message.
_LLM_ERROR: Final = re.compile(
    r"^(?:Unrecoverable LLM error|Authentication error|Timeout|Unexpected error): "
    r"litellm\.(?P<name>\w+): (?P<text>.*)",
    re.MULTILINE,
)
_COMPLAINT: Final = re.compile(
    r"^(?:Error|Unexpected error|Authentication error|Configuration error|Timeout): ", re.MULTILINE
)
_TAIL: Final = 16 * 1024


class _Costs(Claims):
    total_cost_usd: Cost = None
    total_tokens: Count = None


class _Report(Claims):
    status: Text
    stop_reason: Text
    steps: Count
    output: Words = None
    cost: Cost = None
    costs: Annotated[_Costs, BeforeValidator(fields)] = Field(default_factory=_Costs)


class ArchitectAgent:
    """Runs `architect run --json` and parses the report that it prints when it ends."""

    name = "architect"
    image = DEFAULT_IMAGE
    inherited_env = _INHERITED
    ignored_files = (".architect/",)

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Return the name of the API key's variable if the provider needs it and it is missing."""
        return litellm.missing_key(model, "ARCHITECT_MODEL", environment, "ARCHITECT_API_BASE")

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Reject a token limit: `architect` has no such option and prints nothing while it runs."""
        return unsupported_settings(replace(settings, config_file=None), tokens=False)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line; the task follows `--`, so it may start with a dash."""
        options = {
            "--agent": settings.profile,
            "--max-steps": str(settings.max_steps),
            "--model": spec.model and litellm.with_provider(spec.model),
            "--budget": _text(settings.budget),
            "--timeout": _text(settings.inner_timeout(_CLOSING_TIME)),
            "--config": settings.config_file,
            "--api-base": settings.api_base,
        }
        given = (word for name, value in options.items() if value for word in (name, value))
        fixed = ("architect", "run", "--json", "--quiet", "--confirm-mode", "yolo")
        # litellm 1.81 ignores `--api-base` for DeepSeek's models, but reads this variable.
        own = {} if settings.api_base is None else {"DEEPSEEK_API_BASE": settings.api_base}
        return AgentCommand(
            argv=(*fixed, *given, "--", spec.prompt),
            env=litellm.ENVIRONMENT | own,
        )

    def progress_reader(self) -> ProgressReader:
        """Return a reader that never reports progress: `architect` prints only at its end."""
        return lambda _: None

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return the outcome from the program's report, or else from its exit code and stderr."""
        fields_read = find_report(output.stdout, _REPORT_KEYS)
        if fields_read is None:
            return _without_report(output.stderr, exit_status.exit_code)
        report = _Report.model_validate(fields_read)
        status, reason, message = _verdict(report, exit_status.exit_code)
        return AgentOutcome(
            status=status,
            reason=reason,
            message=message,
            steps=report.steps or 0,
            cost=report.costs.total_cost_usd if report.cost is None else report.cost,
            tokens=report.costs.total_tokens,
            summary=as_summary(report.output),
            retry_after=retry_after(reason, report.output),
        )


def _text(figure: float | None) -> str | None:
    return None if figure is None else str(figure)


def _verdict(report: _Report, exit_code: int) -> tuple[Status, Reason | None, str | None]:
    message = as_line(report.output)
    status, reason = _claim(report)
    if status is not Status.SUCCESS or exit_code == 0:
        return status, reason, message
    if exit_code in _INTERRUPTED:
        return Status.PARTIAL, Reason.CANCELLED, message
    return contradicted(exit_code)


def _claim(report: _Report) -> tuple[Status, Reason | None]:
    """Return status and reason from the report's `stop_reason`, or else from its `status`."""
    if report.stop_reason in _STOPPED:
        status, reason = _STOPPED[report.stop_reason]
        if reason is Reason.AGENT_ERROR:
            reason = _llm_reason(report.output or "")
        failed = report.status == Status.FAILED and status is Status.PARTIAL
        return (Status.FAILED if failed else status), reason
    match report.status:
        case Status.SUCCESS:
            return Status.SUCCESS, None
        case Status.FAILED:
            return Status.FAILED, Reason.AGENT_FAILED
        case _:
            return Status.PARTIAL, Reason.AGENT_FAILED


def _llm_reason(text: str) -> Reason:
    match = _LLM_ERROR.search(text)
    return Reason.AGENT_ERROR if match is None else litellm.reason_of(match["name"], match["text"])


def _without_report(stderr: Path, exit_code: int) -> AgentOutcome:
    if exit_code == 0:
        return AgentOutcome(
            status=Status.PARTIAL,
            reason=Reason.NO_REPORT,
            message="the agent exited with 0, but printed no report",
        )
    tail = text_tail(stderr, _TAIL)
    complaint = None
    # If a signal ended the program, its earlier output does not explain why.
    if exit_code <= _SIGNALLED:
        # The last error message that `architect` itself printed; it may span several lines.
        starts = [match.start() for match in _COMPLAINT.finditer(tail)]
        complaint = (as_line(tail[starts[-1] :]) if starts else None) or last_line(stderr)
    reason = _llm_reason(tail)
    return AgentOutcome(
        status=Status.FAILED,
        reason=reason,
        message=complaint or describe_exit(exit_code),
        retry_after=retry_after(reason, complaint),
    )
