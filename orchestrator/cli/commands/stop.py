"""`orchestrator stop`: stop workers of a run."""

from typing import Annotated

import typer

from orchestrator.cli.output.messages import show
from orchestrator.cli.run_arguments import RunOption, follow, open_run
from orchestrator.errors import ConfigError
from orchestrator.state.history import RunHistory


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
    if everyone == bool(workers):
        raise ConfigError(
            "no worker was chosen", hint="use `orchestrator stop N`, or `orchestrator stop --all`"
        )
    with open_run(run, worker=workers[0] if workers else None) as history:
        chosen = workers or list(history.workers)
        _check(history, chosen)
        running = [number for number in chosen if history.directory.result(number) is None]
        for number in running:
            history.directory.ask_to_stop(number, kill=kill)
        follow(lambda: False, goes_on=lambda: _goes_on(history, running))
        for number in running:
            result = history.directory.result(number)
            show(f"stopped worker {number}: {result.status if result else 'no result'}")


def _check(history: RunHistory, chosen: list[int]) -> None:
    unknown = [str(number) for number in chosen if number not in history.workers]
    if unknown:
        known = ", ".join(str(number) for number in history.workers)
        raise ConfigError(
            f"run {history.run_id} has no worker {', '.join(unknown)}",
            hint=f"workers of the run: {known}",
        )
    if not history.directory.is_live():
        history.result()  # raises an error if the run's process died
        raise ConfigError(
            f"run {history.run_id} has ended", hint="`orchestrator ls` lists the runs"
        )


def _goes_on(history: RunHistory, running: list[int]) -> bool:
    waiting = any(history.directory.result(number) is None for number in running)
    return waiting and history.directory.is_live()
