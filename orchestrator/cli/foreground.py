"""Carry a run out in front of people: the live view, the signals, the result, the exit code."""

from typing import Protocol

from orchestrator.cli.output.messages import show, tell_failure
from orchestrator.cli.output.report import show_run, summary_line
from orchestrator.cli.output.views import View
from orchestrator.cli.signals import Interruption
from orchestrator.config.run import ParallelConfig
from orchestrator.errors import OrchestratorError
from orchestrator.events import Notice
from orchestrator.results import RunResult, exit_code
from orchestrator.workflow.model import Workflow


class ForegroundRun(Protocol):
    """A run, new or resumed."""

    def execute(self) -> RunResult:
        """Run it to its end."""

    def cancel(self, *, kill: bool = False) -> None:
        """Stop it."""


def run_in_foreground(
    run: ForegroundRun,
    config: ParallelConfig,
    view: View,
    *,
    workflow: Workflow | None = None,
    quiet: bool,
    as_json: bool,
    summary: bool = False,
) -> int:
    """Run to the end, show the result, give the exit code.

    Args:
        run: What to run.
        config: Its wishes.
        view: Shows it as it goes on.
        workflow: Whose tasks it has.
        quiet: Say nothing beside the result.
        as_json: Show that as JSON.
        summary: Show that in one line.

    Raises:
        OrchestratorError: It could not start.
    """

    def stop(again: bool) -> None:
        run.cancel(kill=again)
        view(Notice(message=_stopping(config, again=again)))

    with Interruption(stop) as interruption:
        try:
            with view:
                result = run.execute()
        except OrchestratorError as error:
            if interruption.exit_code is None:
                raise
            tell_failure(error)
            return interruption.exit_code
        if summary:
            show(summary_line(result))
            code = exit_code(result.results, fail_on=config.fail_on)
        else:
            code = show_run(result, config, workflow=workflow, quiet=quiet, as_json=as_json)
    return interruption.exit_code or code


def _stopping(config: ParallelConfig, *, again: bool) -> str:
    if again:
        return "killing the containers"
    return f"stopping: workers get {config.limits.grace:g} s to end; interrupt again to kill them"
