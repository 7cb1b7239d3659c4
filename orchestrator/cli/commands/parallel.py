"""`orchestrator parallel` and `orchestrator run-one`."""

from typing import Annotated

import typer

from orchestrator.cli.new_run import (
    configure,
    fetch_base,
    one_at_a_time,
    refuse_idle_options,
    start,
)
from orchestrator.cli.options import GivenSettings, with_settings
from orchestrator.cli.output.views import make_view
from orchestrator.cli.run_options import RunOptions, SeveralRunOptions
from orchestrator.cli.turns import turn
from orchestrator.errors import ConfigError
from orchestrator.runs.runner import ParallelRunner

_OF_SEVERAL_WORKERS = (
    *("tasks", "workers", "models", "budget_total", "tokens_total"),
    *("stagger", "fail_fast", "fail_on"),
)
"""Settings that have no meaning for a run of one worker."""

FirstTask = Annotated[str | None, typer.Argument(metavar="TASK", help="Task of the first worker.")]
OnlyTask = Annotated[str | None, typer.Argument(metavar="TASK", help="Task of the worker.")]


@with_settings()
def parallel(settings: GivenSettings, run: SeveralRunOptions, positional: FirstTask = None) -> None:
    """Run tasks at once, each worker in its own git worktree and container."""
    _run(positional, one_at_a_time(settings, run), run)


@with_settings(without=_OF_SEVERAL_WORKERS)
def run_one(settings: GivenSettings, run: RunOptions, positional: OnlyTask = None) -> None:
    """Run one task in its own git worktree and container."""
    _run(positional, {**settings, "workers": "1"}, run)


def _run(positional: str | None, given: GivenSettings, run: RunOptions) -> None:
    if positional is not None:
        if not positional.strip():
            raise ConfigError(
                "argument TASK must not be empty",
                hint="write the task in quotes, or pass tasks only with `--task`",
            )
        given = {**given, "tasks": (positional, *given.get("tasks", ()))}
    config = configure(given, run).config
    refuse_idle_options(given, config)
    with turn(run):
        fetch_base(run, config.base)
        view = make_view(quiet=run.quiet)
        start(ParallelRunner(config, emit=view), config, view, run)
