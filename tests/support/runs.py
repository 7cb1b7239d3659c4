"""Run tasks on the local engine; each task is a command line."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.base.events import Event
from orchestrator.base.results import RunResult, WorkerResult
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.project import Project
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.runs.runner import ParallelRunner
from tests.support.repository import git

GRACE = 0.3


def configured(*tasks: str, **rest: Any) -> ParallelConfig:
    """Return the configuration of a run with a slot for each task, unless overridden."""
    options = {
        "tasks": tasks,
        "agent_cli": "shell",
        "workers": len(tasks),
        "timeout_per_worker": 60,
        "limits": Limits(grace=GRACE),
        "isolation": Isolation(network="none"),
    }
    project = {name: rest.pop(name) for name in Project.model_fields if name in rest}
    return ParallelConfig(**{**options, "project": Project(**project), **rest})


def shell_run(root: Path, engine: ContainerEngine, *tasks: str, **rest: Any) -> RunResult:
    """Run tasks until all have ended, and return the run's result."""
    return ParallelRunner(configured(*tasks, **rest), root, engine=engine).execute()


def run_until(
    at: Callable[[Event], bool], config: ParallelConfig, root: Path, engine: ContainerEngine
) -> WorkerResult:
    """Run one worker, and cancel the run at the first event for which `at` is true."""
    began = threading.Event()

    def emit(event: Event) -> None:
        if at(event):
            began.set()

    runner = ParallelRunner(config, root, emit=emit, engine=engine)
    canceller = threading.Thread(target=lambda: (began.wait(60), runner.cancel()))
    canceller.start()
    (worker,) = runner.execute().results
    canceller.join()
    return worker


def branches(repo: Path) -> list[str]:
    """Return the names of the workers' branches."""
    found = git(repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/architect")
    return found.splitlines()


def show(repo: Path, place: str) -> str:
    """Return a file's content in a commit, such as `architect/parallel-1:a.txt`."""
    return git(repo, "show", place)
