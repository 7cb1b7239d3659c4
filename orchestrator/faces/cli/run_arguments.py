"""Arguments and helpers of commands that read a run of another process."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.faces.cli.output.report import show_run
from orchestrator.faces.cli.output.streams import check_readers
from orchestrator.repository.repository import Repository
from orchestrator.state.record.history import RunHistory, choose_run
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_record import require_record

TICK = 0.1
"""Seconds between two checks whether a run's files contain new data."""

Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="Id of the run, or its first characters. [default: the newest run]"
    ),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="ID",
        help="Id of the run, or its first characters. [default: the newest run]",
    ),
]
Number = Annotated[
    int | None, typer.Argument(metavar="N", min=1, help="Number of the worker. [default: all]")
]
Follow = Annotated[
    bool,
    typer.Option("-f", "--follow", help="Keep printing until the run ends.", show_default=False),
]


def open_run(wanted: str | None, *, worker: int | None = None) -> RunHistory:
    """Open the run that the user asks for, in the repository of the current directory.

    Raises:
        ConfigError: There is no such run.
    """
    state_dir = Repository(Path.cwd()).state_dir
    return choose_run(list(all_runs(state_dir)), wanted, worker=worker)


def follow(step: Callable[[], bool], *, is_live: Callable[[], bool]) -> None:
    """Call `step` repeatedly until it finds no new data and the run has ended.

    `step` returns whether there was new data, and `is_live` whether the run is in progress.

    Raises:
        LostOutputError: The command only prints, and its reader has closed the pipe.
    """
    while True:
        # Checked before the step, so that the step sees everything written before the end.
        was_live = is_live()
        if not step():
            if not was_live:
                return
            check_readers()
            time.sleep(TICK)


def show_ending(history: RunHistory, *, as_json: bool = False) -> int:
    """Print the result of a run that has ended; return the exit code that the run itself had.

    Raises:
        RunDiedError: The run's process died.
        ConfigError: The run's record cannot be read.
    """
    result = history.result()
    record = require_record(history.directory)
    return show_run(result, record.config, workflow=record.workflow, as_json=as_json)
