"""Adapter of `mini` (mini-swe-agent 2.4.6), which runs the model's shell commands one by one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

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
    as_line,
    as_summary,
    describe_exit,
)
from orchestrator.agents.output.no_report import unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import find_report
from orchestrator.agents.programs import litellm
from orchestrator.agents.start import starter
from orchestrator.base.results import Reason, Status
from orchestrator.base.text.quantities import money
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.images.names import worker_image
from orchestrator.engine.interface.protocol import ExitStatus

_REPORT_KEYS: Final = frozenset({"mini_version", "exit_status"})
_MODEL: Final = "MSWEA_MODEL_NAME"
_ENVIRONMENT: Final = {
    **litellm.ENVIRONMENT,
    # Without this variable, `mini` asks for a model and a key, and waits for an answer.
    "MSWEA_CONFIGURED": "true",
    "MSWEA_SILENT_STARTUP": "1",
    # Model calls before the program gives up after 12 s; the default of 10 takes 4 minutes.
    "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "4",
}
# Allows models without a known price; not set with a budget, which could not be enforced.
_UNPRICED: Final = {"MSWEA_COST_TRACKING": "ignore_errors"}
_CLOSING_TIME: Final = 10.0
"""Seconds that `mini` may run beyond its own timeout, to complete a command of up to 30 s."""


class _Report(Claims):
    exit_status: Text
    steps: Count = None
    cost: Cost = None
    tokens: Count = None
    cost_limit: Cost = None
    said: Text = None


class MiniAgent:
    """Runs `mini` without questions to the user, and parses the summary of `in_container`."""

    name = "mini"
    image = worker_image("mini")
    inherited_env = (_MODEL, *litellm.INHERITED)
    ignored_files: tuple[str, ...] = ()

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Return the name of the API key's variable if the provider needs it and it is missing."""
        return litellm.missing_key(model, _MODEL, environment)

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Reject profiles and token limits: `mini` reports nothing while it runs."""
        return unsupported_settings(settings, profiles=False, tokens=False)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line that starts `mini` through the helper `in_container`."""
        model = () if spec.model is None else ("-m", litellm.with_provider(spec.model))
        timeout = settings.inner_timeout(_CLOSING_TIME)
        time_limit = () if timeout is None else ("-c", f"agent.wall_time_limit_seconds={timeout}")
        return AgentCommand(
            argv=(
                *(*starter(), "mini", "-y", "--exit-immediately"),
                *("-c", "mini.yaml", "-c", f"agent.step_limit={settings.max_steps}"),
                # Without `-l 0`, `mini` stops at $3.
                *("-l", f"{settings.budget or 0}", *time_limit),
                *model,
                *("-t", spec.prompt),
            ),
            env={
                **_ENVIRONMENT,
                **(_UNPRICED if settings.budget is None else {}),
                **litellm.own_server(settings.api_base),
            },
            default_env={_MODEL: litellm.DEFAULT_MODEL},
        )

    def progress_reader(self) -> ProgressReader:
        """Return a reader that never reports progress: `mini` enforces all limits itself."""
        return lambda _: None

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return the outcome from the summary line, or else from the exit code and stderr."""
        code = exit_status.exit_code
        fields_read = find_report(output.stdout, _REPORT_KEYS)
        if fields_read is None:
            return unreported(output, code)
        report = _Report.model_validate(fields_read)
        if report.exit_status:
            status, reason, message = _verdict(report)
            if status is Status.SUCCESS and code != 0:
                status, reason = Status.FAILED, Reason.AGENT_ERROR
                message = f"the agent submitted its work, but {describe_exit(code)}"
            end = AgentOutcome(status=status, reason=reason, message=message)
        else:
            # The program was stopped between two steps.
            end = unreported(output, code)
        return replace(
            end,
            steps=report.steps or 0,
            # `mini` reports 0 if it does not know the price.
            cost=report.cost or None,
            tokens=report.tokens or None,
            summary=as_summary(report.said),
            retry_after=retry_after(end.reason, report.said),
        )


def _verdict(report: _Report) -> tuple[Status, Reason | None, str | None]:
    match report.exit_status or "":
        case "Submitted":
            return Status.SUCCESS, None, as_line(report.said)
        case "LimitsExceeded":
            cost, limit = report.cost or 0.0, report.cost_limit
            if limit and cost >= limit:
                message = f"the agent spent {money(cost)} of {money(limit)}"
                return Status.PARTIAL, Reason.BUDGET, message
            message = f"the agent used all of its {report.steps or 0} steps"
            return Status.PARTIAL, Reason.MAX_STEPS, message
        case "TimeExceeded":
            return Status.TIMEOUT, Reason.TIMEOUT, "the agent stopped just before its deadline"
        case "RepeatedFormatError":
            return Status.FAILED, Reason.AGENT_FAILED, "the model repeatedly gave no command"
        case error:
            reason = litellm.reason_of(error, report.said or "")
            return Status.FAILED, reason, as_line(report.said or error)
