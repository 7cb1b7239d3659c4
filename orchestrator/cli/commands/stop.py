"""`orchestrator stop`: stop workers of a run."""

from typing import Annotated

import typer

from orchestrator.cli.output.messages import show
from orchestrator.cli.run_arguments import RunOption, follow, open_run
from orchestrator.errors import ConfigError
from orchestrator.record.history import RunHistory
from orchestrator.record.stop_request import request_stop
from orchestrator.results import Reason, WorkerResult


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
        follow(lambda: False, is_live=lambda: _are_running(history, running))
        for number in running:
            result = history.directory.result(number)
            show(_ending(history, number, result))


def _ending(history: RunHistory, number: int, result: WorkerResult | None) -> str:
    if result is None:
        return f"worker {number} {history.sentence(number)}"
    if result.reason is not Reason.CANCELLED:
        return f"worker {number} ended before it was stopped: {result.outcome}"
    return f"worker {number} was stopped; its work is on the branch {result.branch}"


def _are_running(history: RunHistory, running: list[int]) -> bool:
    waiting = any(history.directory.result(number) is None for number in running)
    return waiting and history.directory.is_live()
