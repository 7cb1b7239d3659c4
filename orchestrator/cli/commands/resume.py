"""`orchestrator resume`: continue a run whose process died."""

import typer

from orchestrator.cli.foreground import run_in_foreground
from orchestrator.cli.options import ReportedOutput, with_options
from orchestrator.cli.output.views import make_view
from orchestrator.cli.run_arguments import Run, open_run
from orchestrator.runs.detach import take_inherited_lease
from orchestrator.runs.resume import ResumedRun
from orchestrator.state.run_record import require_record


@with_options
def resume(output: ReportedOutput, run: Run = None) -> None:
    """Continue a run whose process died, without repeating finished tasks."""
    with open_run(run) as history:
        directory, record = history.directory, require_record(history.directory)
    view = make_view(quiet=output.quiet, events=output.events)
    resumed = ResumedRun(directory, emit=view, lease=take_inherited_lease())
    code = run_in_foreground(resumed, record.config, view, output, workflow=record.workflow)
    raise typer.Exit(code)
