"""`orchestrator retry`: repeat one worker of an ended run."""

import os
from typing import Annotated

import typer

from orchestrator.cleanup.inventory import RecordedWorker
from orchestrator.cli.foreground import run_in_foreground
from orchestrator.cli.options import ReportedOutput, with_options
from orchestrator.cli.output.views import make_view
from orchestrator.cli.run_arguments import RunOption, open_run
from orchestrator.errors import ConfigError
from orchestrator.runs.rerun import settings_to_repeat
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_record import require_record


@with_options
def retry(
    worker: Annotated[int, typer.Argument(metavar="N", min=1, help="Number of the worker.")],
    output: ReportedOutput,
    run: RunOption = None,
) -> None:
    """Repeat one worker of an ended run, as a new run."""
    with open_run(run, worker=worker) as history:
        if history.directory.is_live():
            raise ConfigError(
                f"run {history.run_id} is still running",
                hint=f"stop the run first: `orchestrator stop --all --run {history.run_id}`",
            )
        record = require_record(history.directory)
        base = RecordedWorker(history.directory, record, history.workers[worker].spec).base
        config = settings_to_repeat(record, worker, os.environ, base=base)
    view = make_view(quiet=output.quiet, events=output.events)
    runner = ParallelRunner(config, emit=view)
    raise typer.Exit(run_in_foreground(runner, config, view, output))
