"""`orchestrator resume` and `orchestrator retry`: continue a run, and repeat one of its workers."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.foreground import run_in_foreground
from orchestrator.cli.options import ReportedOutput, with_options
from orchestrator.cli.output.views import make_view
from orchestrator.cli.run_arguments import Run, RunOption, open_run
from orchestrator.git.repository import Repository
from orchestrator.runs.detach import take_inherited_lease
from orchestrator.runs.recorded import config_to_repeat
from orchestrator.runs.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
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


@with_options
def retry(
    worker: Annotated[int, typer.Argument(metavar="N", min=1, help="Number of the worker.")],
    output: ReportedOutput,
    run: RunOption = None,
) -> None:
    """Repeat one worker of an ended run, as a new run."""
    config = config_to_repeat(Repository(Path.cwd()), run, worker)
    view = make_view(quiet=output.quiet, events=output.events)
    runner = ParallelRunner(config, emit=view)
    raise typer.Exit(run_in_foreground(runner, config, view, output))
