"""Adapter that runs the task as a shell command instead of an agent, for example in CI."""

from collections.abc import Mapping
from typing import Final

from orchestrator.agents.base import (
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
    ProgressReader,
    unsupported_settings,
)
from orchestrator.agents.output.fields import (
    MOST_SAID,
    Claims,
    Cost,
    Count,
    Text,
    as_summary,
    describe_exit,
)
from orchestrator.agents.output.search import find_report, last_line, parse_object, text_tail
from orchestrator.agents.start import is_long, pieces
from orchestrator.base.results import Reason, Status
from orchestrator.base.text.split_lines import lines_of_output
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.protocol import ExitStatus

REPORT: Final = "orchestrator.report"
"""Value of the key `type` of a command's report."""
_TYPED: Final = frozenset({"type"})
_STATUS: Final = frozenset({"status"})
_OLD_KEYS: Final = frozenset({"status", "reason", "retry_after", "steps", "cost", "tokens"})
_OLD_STATUS: Final = frozenset({"success", "partial", "failed"})
_UNTYPED: Final = f'the report has no `"type": "{REPORT}"`; the next release will not read it'
_FIGURES: Final = ('"cost"', '"tokens"', '"steps"')
_LONGEST_LINE: Final = 16 * 1024
"""Maximum number of characters of a line that is parsed while the command runs."""
_TAIL: Final = 4 * MOST_SAID
"""Number of bytes that are read at the end of the output: enough for the longest summary."""
_JOIN: Final = """task=$(IFS=; printf %s "$*"); set --; eval "unset task
$task\""""
_DOWNGRADES: Final = {"partial": Status.PARTIAL, "failed": Status.FAILED}


class _Report(Claims):
    status: Text = None
    reason: Text = None
    retry_after: Cost = None
    steps: Count = None
    cost: Cost = None
    tokens: Count = None


class ShellAgent:
    """Runs the task with `sh -c`.

    A command may report its own figures by printing a line such as `{"type": "orchestrator.report",
    "status": "partial", "steps": 3, "cost": 0.02, "tokens": 900}`; the last such line counts. A
    command that failed because an API refused its requests may add `"reason": "rate_limited"` and,
    in seconds, `"retry_after": 20`. Other JSON lines are only output: test runners and loggers use
    the same keys.
    """

    name = "shell"
    image = BASE_IMAGE
    inherited_env: tuple[str, ...] = ()
    ignored_files: tuple[str, ...] = ()

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> None:
        """Return None, because it is unknown whether a shell command calls a model."""

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Reject a step limit, which has no meaning for a command."""
        return unsupported_settings(settings, steps=False)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line; environment variables hold the run's settings."""
        env = {
            "ORCHESTRATOR_WORKER_ID": str(spec.worker_id),
            "ORCHESTRATOR_AGENT": settings.profile,
            "ORCHESTRATOR_MODEL": spec.model,
            "ORCHESTRATOR_MESSAGE": spec.message,
            "ORCHESTRATOR_BUDGET": None if settings.budget is None else str(settings.budget),
            "ORCHESTRATOR_TOKENS": None if settings.tokens is None else str(settings.tokens),
            "ORCHESTRATOR_API_BASE": settings.api_base,
        }
        task = spec.prompt
        words = (_JOIN, "sh", *pieces(task)) if is_long(task) else ("--", task)
        return AgentCommand(
            argv=("sh", "-c", *words),
            env={name: value for name, value in env.items() if value is not None},
        )

    def progress_reader(self) -> ProgressReader:
        """Return a reader of reports with a `cost`, `tokens` or `steps`."""
        return _progress

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return the outcome from the exit code; a report can make it worse, but not better."""
        found = find_report(output.stdout, _TYPED, accepts=_is_typed)
        old = None if found else find_report(output.stdout, _STATUS, accepts=_is_old)
        report = _Report.model_validate(found or old or {})
        is_done = exit_status.exit_code == 0
        claimed = _DOWNGRADES.get(report.status or "", Status.SUCCESS)
        status = claimed if is_done else Status.FAILED
        succeeded = status is Status.SUCCESS
        message = None if succeeded else _message(output, report, exit_status.exit_code)
        refused = status is Status.FAILED and report.reason == Reason.RATE_LIMITED
        reason = Reason.RATE_LIMITED if refused else Reason.AGENT_FAILED
        tail = text_tail(output.stdout, _TAIL)
        lines = lines_of_output((tail if len(tail) < _TAIL else tail.partition("\n")[2]).rstrip())
        if lines and _is_report(parse_object(lines[-1])):
            lines.pop()
        kept: list[str] = []
        room = MOST_SAID
        for line in reversed(lines):
            room -= len(line) + 1
            if kept and room < 0:
                break
            kept.append(line)
        return AgentOutcome(
            status=status,
            reason=None if succeeded else reason,
            message="; ".join(filter(None, (message, _UNTYPED if old else None))) or None,
            steps=report.steps or 0,
            cost=report.cost,
            tokens=report.tokens,
            summary=as_summary("\n".join(reversed(kept))),
            retry_after=report.retry_after,
        )


def _is_report(said: dict[str, object] | None) -> bool:
    return said is not None and (_is_typed(said) or _is_old(said))


def _is_typed(said: dict[str, object]) -> bool:
    return said.get("type") == REPORT


def _is_old(said: dict[str, object]) -> bool:
    """Return whether an object is a report of the form that earlier releases documented.

    It has a status and two other keys of a report, or one of them and no unknown keys.
    """
    status = said.get("status")
    known = len(said.keys() & _OLD_KEYS) if isinstance(status, str) else 0
    return status in _OLD_STATUS and known >= (2 if said.keys() <= _OLD_KEYS else 3)


def _progress(line: str) -> AgentProgress | None:
    if not line.startswith("{") or len(line) > _LONGEST_LINE:
        return None
    # Commands may print many JSON lines, of which only few contain figures.
    if not any(key in line for key in _FIGURES):
        return None
    said = parse_object(line)
    # protection: only-reports-of-command-spend-budget
    if not _is_report(said):
        return None
    report = _Report.model_validate(said)
    if report.cost is None and report.tokens is None and report.steps is None:
        return None
    # A command may use `steps` for anything, such as steps of a training.
    return AgentProgress(cost=report.cost, tokens=report.tokens, steps=report.steps, bounded=False)


def _message(output: AgentOutput, report: _Report, exit_code: int) -> str:
    last = last_line(output.stdout)
    if _is_report(parse_object(last or "")):
        # A report is not a message for users.
        last = None if exit_code else f"the command reported `{report.status}`"
    return last_line(output.stderr) or last or describe_exit(exit_code)
