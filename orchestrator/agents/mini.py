"""The `mini` program (mini-swe-agent 2.4.6): one shell command of the model's after the other."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from orchestrator.agents import litellm
from orchestrator.agents.base import (
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentSettings,
    ProgressReader,
)
from orchestrator.agents.launcher import starter
from orchestrator.agents.output.fields import (
    Claims,
    Cost,
    Count,
    Text,
    describe_exit,
    described,
    summarized,
)
from orchestrator.agents.output.no_report import unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import find_report
from orchestrator.agents.unsupported import unsupported_settings
from orchestrator.engine.images.names import worker_image
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

_REPORT_KEYS: Final = frozenset({"mini_version", "exit_status"})
_MODEL: Final = "MSWEA_MODEL_NAME"
_ENVIRONMENT: Final = {
    **litellm.ENVIRONMENT,
    # Without it the program asks for a model and a key, and waits for an answer.
    "MSWEA_CONFIGURED": "true",
    "MSWEA_SILENT_STARTUP": "1",
    # Calls of the model before it gives up, 12 s from first to last; its own 10 take 4 minutes.
    "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "4",
}
# A model without a known price. With a budget the program fails instead: it could not keep it.
_UNPRICED: Final = {"MSWEA_COST_TRACKING": "ignore_errors"}
_CLOSING_TIME: Final = 10.0
"""Seconds: it looks at its clock between two commands, and none of them takes over 30."""


class _Report(Claims):
    exit_status: Text
    steps: Count = None
    cost: Cost = None
    tokens: Count = None
    cost_limit: Cost = None
    said: Text = None


class MiniAgent:
    """Runs `mini` without questions, and reads the line that `inside` prints at its end."""

    name = "mini"
    image = worker_image("mini")
    inherited_env = (_MODEL, *litellm.INHERITED)
    ignored_files: tuple[str, ...] = ()

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Name the key of the model's provider, if it is known and a key is all that is missing."""
        return litellm.missing_key(model, _MODEL, environment)

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Have no profiles, and tell nothing while it runs."""
        return unsupported_settings(settings, profiles=False, tokens=False)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line, and the program that it is started by."""
        model = () if spec.model is None else ("-m", litellm.with_provider(spec.model))
        return AgentCommand(
            argv=(
                *(*starter(), "mini", "-y", "--exit-immediately"),
                *("-c", "mini.yaml", "-c", f"agent.step_limit={settings.max_steps}"),
                *_limits(settings),
                *model,
                *("-t", spec.task),
            ),
            env={
                **_ENVIRONMENT,
                **(_UNPRICED if settings.budget is None else {}),
                **litellm.own_server(settings.api_base),
            },
            default_env={_MODEL: litellm.DEFAULT_MODEL},
        )

    def progress_reader(self) -> ProgressReader:
        """Read nothing: the program keeps every limit itself."""
        return lambda _: None

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Judge the report, or the lack of one."""
        code = exit_status.exit_code
        found = find_report(output.stdout, _REPORT_KEYS)
        if found is None:
            return unreported(output, code)
        report = _Report.model_validate(found)
        # It says nothing where it was ended between two steps.
        judged = _judged(report, code) if report.exit_status else unreported(output, code)
        return replace(
            judged,
            steps=report.steps or 0,
            # What it cannot price, or was not told, it counts as nothing.
            cost=report.cost or None,
            tokens=report.tokens or None,
            summary=summarized(report.said),
            retry_after=retry_after(judged.reason, report.said),
        )


def _limits(settings: AgentSettings) -> tuple[str, ...]:
    """Return its own limits; without `-l 0` there would be one of $3 that nobody asked for."""
    budget = ("-l", f"{settings.budget or 0}")
    timeout = settings.inner_timeout(_CLOSING_TIME)
    if timeout is None:
        return budget
    return (*budget, "-c", f"agent.wall_time_limit_seconds={timeout}")


def _judged(report: _Report, code: int) -> AgentOutcome:
    status, reason, message = _verdict(report)
    if status is Status.SUCCESS and code != 0:
        status, reason = Status.FAILED, Reason.AGENT_ERROR
        message = f"it submitted its work, but {describe_exit(code)}"
    return AgentOutcome(status=status, reason=reason, message=message)


def _verdict(report: _Report) -> tuple[Status, Reason | None, str | None]:
    match report.exit_status or "":
        case "Submitted":
            return Status.SUCCESS, None, described(report.said)
        case "LimitsExceeded":
            return Status.PARTIAL, *_limit(report)
        case "TimeExceeded":
            return Status.TIMEOUT, Reason.TIMEOUT, "it stopped before its deadline"
        case "RepeatedFormatError":
            return Status.FAILED, Reason.AGENT_FAILED, "the model went on giving no command"
        case error:
            reason = litellm.reason_of(error, report.said or "")
            return Status.FAILED, reason, described(report.said or error)


def _limit(report: _Report) -> tuple[Reason, str]:
    cost, limit = report.cost or 0.0, report.cost_limit
    if limit and cost >= limit:
        return Reason.BUDGET, f"it spent ${cost:.4f} of ${limit:.4f}"
    return Reason.MAX_STEPS, f"it took all of its {report.steps or 0} steps"
