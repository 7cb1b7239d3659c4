"""`orchestrator parallel` and `orchestrator run-one`."""

from typing import Annotated

import typer

from orchestrator.faces.cli.options import GivenSettings, import_later, with_settings
from orchestrator.faces.cli.run_options import ParallelOptions, RunOptions, one_at_a_time

_OF_SEVERAL_WORKERS = (
    *("tasks", "workers", "models", "budget_total", "tokens_total"),
    *("stagger", "fail_fast", "fail_on"),
)
"""Settings without a meaning for a run of a single worker."""

_run_tasks = import_later("task_run", "run_tasks")

FirstTask = Annotated[
    str | None, typer.Argument(metavar="TASK", help="Prompt or command for the first worker.")
]
OnlyTask = Annotated[
    str | None, typer.Argument(metavar="TASK", help="Prompt or command for the worker.")
]


@with_settings()
def parallel(settings: GivenSettings, run: ParallelOptions, positional: FirstTask = None) -> None:
    """Run tasks at once, each worker in its own git worktree and container."""
    _run_tasks(positional, one_at_a_time(settings, run), run)


@with_settings(without=_OF_SEVERAL_WORKERS, texts={"model": "Model of the worker."})
def run_one(settings: GivenSettings, run: RunOptions, positional: OnlyTask = None) -> None:
    """Run one task in its own git worktree and container."""
    _run_tasks(positional, {**settings, "workers": "1"}, run)
