"""`orchestrator stop` and `orchestrator wait`: stop workers of a run, or wait for its end."""

from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason
from orchestrator.faces.cli.options import Json
from orchestrator.faces.cli.output.messages import show
from orchestrator.faces.cli.run_arguments import Run, RunOption, follow, open_run, show_ending
from orchestrator.state.record.stop_request import request_stop


def stop(
    workers: Annotated[
        list[int] | None, typer.Argument(metavar="N", min=1, help="Numbers of the workers to stop.")
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help="Stop every worker of the run.", show_default=False)
    ] = False,
    run: RunOption = None,
    kill: Annotated[
        bool,
        typer.Option(
            "--kill", help="Kill the workers at once, without the grace period.", show_default=False
        ),
    ] = False,
) -> None:
    """Stop workers of a run, wait for their end, and keep what they wrote."""
    if everyone and workers:
        raise ConfigError(
            "numbers of workers cannot be used with `--all`",
            key="option.conflict",
            hint="`orchestrator stop --all` stops every worker of the run",
        )
    if not (everyone or workers):
        raise ConfigError(
            "no worker was chosen",
            key="worker.unnamed",
            hint="use `orchestrator stop N`, or `orchestrator stop --all`",
        )
    with open_run(run, worker=workers[0] if workers else None) as history:
        running = request_stop(history, workers or list(history.workers), kill=kill)
        for number in workers or ():
            if number not in running:
                show(f"worker {number} {history.sentence(number)}")
        directory = history.directory
        follow(
            lambda: False,
            is_live=lambda: None in map(directory.result, running) and directory.is_live(),
        )
        for number in running:
            result = directory.result(number)
            if result is None:
                show(f"worker {number} {history.sentence(number)}")
            elif result.reason is not Reason.CANCELLED:
                show(f"worker {number} ended before it was stopped: {result.outcome}")
            else:
                show(f"worker {number} was stopped; its work is on the branch {result.branch}")


def wait(run: Run = None, json: Json = False) -> None:
    """Wait for the end of a run, then print its result and exit with its exit code."""
    with open_run(run) as history:
        follow(lambda: False, is_live=history.directory.is_live)
        raise typer.Exit(show_ending(history, as_json=json))
