"""`orchestrator resume`."""

import typer

from orchestrator.cli import options
from orchestrator.cli.foreground import run_in_foreground
from orchestrator.cli.output.views import make_view
from orchestrator.cli.run_arguments import Run, open_run
from orchestrator.runs.detach import handed_down
from orchestrator.runs.resume import ResumedRun


def resume(run: Run = None, quiet: options.Quiet = False, json: options.Json = False) -> None:
    """Continue a run whose process died, without repeating finished tasks."""
    with open_run(run) as history:
        directory, record = history.directory, history.record
    view = make_view(quiet=quiet)
    resumed = ResumedRun(directory, emit=view, lease=handed_down())
    code = run_in_foreground(
        resumed, record.config, view, workflow=record.workflow, quiet=quiet, as_json=json
    )
    raise typer.Exit(code)
