"""Execute a run in the foreground: show its progress, handle signals, print its result."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.events import Notice
from orchestrator.base.results import RunResult, exit_code
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Workflow
from orchestrator.faces.cli.next_step import NextStep
from orchestrator.faces.cli.options import OutputOptions
from orchestrator.faces.cli.output.ci import automatic_report
from orchestrator.faces.cli.output.formats import terminal_width
from orchestrator.faces.cli.output.messages import show, show_json, tell, tell_failure
from orchestrator.faces.cli.output.report import (
    after_run,
    name_to_type,
    run_json,
    show_run,
    summary_line,
    timings_table,
)
from orchestrator.faces.cli.output.views import View
from orchestrator.faces.cli.signals import Interruption

if TYPE_CHECKING:
    # Most runs neither merge nor write reports, and should not wait for these imports.
    from orchestrator.faces.cli.reporting import Reports
    from orchestrator.review.landing.merged import Merged


class ForegroundRun(Protocol):
    """A new or resumed run."""

    @property
    def run_id(self) -> str | None:
        """The run's id; None before the run is recorded."""

    def execute(self) -> RunResult:
        """Execute the run until it ends, and return its result."""

    def cancel(self, *, kill: bool = False) -> None:
        """Stop the run; with `kill`, without a grace period."""


def run_in_foreground(
    run: ForegroundRun,
    config: ParallelConfig,
    view: View,
    output: OutputOptions,
    *,
    workflow: Workflow | None = None,
) -> int:
    """Execute a run, print its result, and return the exit code.

    Args:
        run: The run.
        config: The run's configuration.
        view: Shows the progress.
        output: How the result is printed, and the action after the run, such as a merge.
        workflow: The workflow, if the run executes one.

    Raises:
        OrchestratorError: The run could not start, or the action after the run failed.
    """
    reports = _find_reports(output)
    next_step, merged = output.next_step, None

    def stop(again: bool) -> None:
        run.cancel(kill=again)
        if next_step is not None:
            next_step.cancel(kill=again)
        view(Notice(message=_stopping(config, again=again)))

    with Interruption(stop) as interruption:
        try:
            with view:
                result = run.execute()
            if next_step is None or interruption.exit_code is not None:
                code = _show_result(result, config, output, workflow)
            else:
                code, merged = _go_on(next_step, result, config, output, workflow)
        except OrchestratorError as error:
            if reports is not None:
                reports.write(run.run_id)
            if interruption.exit_code is None:
                raise
            tell_failure(error)
            return interruption.exit_code
        if reports is not None:
            reports.write(result.run_id, merged=merged)
    return interruption.exit_code or code


def _find_reports(output: OutputOptions) -> "Reports | None":
    """Return the reports to write at the end of the run; None if there are none.

    Raises:
        ConfigError: There is no such format, or a file cannot be written.
    """
    wanted = output.report or output.artifacts or output.junit
    if not wanted and automatic_report(os.environ) is None:
        return None
    from orchestrator.faces.cli.reporting import Reports

    return Reports.from_options(
        output.report, quiet=output.quiet, artifacts=output.artifacts, junit=output.junit
    )


def _go_on(
    next_step: NextStep,
    result: RunResult,
    config: ParallelConfig,
    output: OutputOptions,
    workflow: Workflow | None,
) -> "tuple[int, Merged | None]":
    """Perform the step after the run, and print the result; return the exit code and any merge."""
    code = exit_code(result.results, fail_on=config.fail_on)
    if not output.json:
        _show_result(result, config, output, workflow)
    more: Mapping[str, object] | None = None
    try:
        sequel = next_step(result, show_text=not output.json)
        more = sequel.values
        return sequel.exit_code_after(code), sequel.merged
    except OrchestratorError as error:
        if not output.json:
            raise
        tell_failure(error)
        more = {"error": error.values()}
        return error.exit_code, None
    finally:
        if output.json:
            show_json(run_json(result, more))


def _show_result(
    result: RunResult, config: ParallelConfig, output: OutputOptions, workflow: Workflow | None
) -> int:
    """Print the result as requested, and return the exit code."""
    code = exit_code(result.results, fail_on=config.fail_on)
    if output.summary:
        show(summary_line(result))
    elif output.events:
        if not output.quiet:
            tell(after_run(result, typed=name_to_type))
    else:
        show_run(result, config, workflow=workflow, quiet=output.quiet, as_json=output.json)
        if output.timings:
            show(timings_table(result))
            # Imported here because only `--timings` needs the model of reports.
            from orchestrator.faces.cli.output.overview import timeline
            from orchestrator.faces.cli.reporting import report_of

            if report := report_of(result.run_id):
                show(f"\n{timeline(report, width=terminal_width())}")
    return code


def _stopping(config: ParallelConfig, *, again: bool) -> str:
    if again:
        return "killing the containers"
    return f"stopping: workers have {config.limits.grace:g} s to end; interrupt again to kill them"
