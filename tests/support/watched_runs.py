"""Runs whose worker waits until an alert about it was reported."""

from pathlib import Path

from orchestrator.base.events import Event, Intervention
from orchestrator.base.results import WorkerResult
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.run import Triggers
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine
from tests.support.runs import GRACE, configured


def watched(
    repo: Path, engine: LocalEngine, task: str, **triggers: object
) -> tuple[WorkerResult, list[Intervention], list[Event]]:
    """Run a task, which may wait for alerts with the command that `told` returns."""
    events: list[Event] = []
    found: list[Intervention] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, Intervention):
            found.append(event)
            (repo.parent / f"told-{len(found)}").touch()

    config = configured(task, triggers=Triggers(**triggers), limits=Limits(grace=GRACE))
    (worker,) = ParallelRunner(config, repo, engine=engine, emit=emit).run()
    return worker, found, events


def told(repo: Path, number: int | str = 1) -> str:
    """Return a command that ends when so many alerts were reported."""
    return f"until [ -e {repo.parent}/told-{number} ]; do sleep 0.02; done"
