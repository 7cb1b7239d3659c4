"""`orchestrator retry`: repeat one worker of an ended run."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.foreground import run_in_foreground
from orchestrator.cli.options import ReportedOutput, with_options
from orchestrator.cli.output.views import make_view
from orchestrator.cli.run_arguments import RunOption
from orchestrator.git.repository import Repository
from orchestrator.runs.recorded import config_to_repeat
from orchestrator.runs.runner import ParallelRunner


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
