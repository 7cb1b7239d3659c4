"""Run tasks on the local engine; each task is a command line."""

import atexit
import os
import shutil
import tempfile
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
from tests.support.repository import git, is_new

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


_past: dict[str, tuple[Path, Path, RunResult]] = {}
"""Repositories after a run: where it was, the copy, and the result."""


def past_run(root: Path, engine: ContainerEngine, *tasks: str, **rest: Any) -> RunResult:
    """Return a run that has ended, for a test of what comes later.

    In a repository that is as `make_repository` returned it, these tasks are run once in this
    process: other repositories get the files that they left.
    """
    if not is_new(root):
        return shell_run(root, engine, *tasks, **rest)
    key = repr((tasks, sorted(rest.items())))
    if key not in _past:
        copy = Path(tempfile.mkdtemp(prefix="orchestrator-tests-")) / "repo"
        atexit.register(shutil.rmtree, copy.parent, ignore_errors=True)
        result = shell_run(root, engine, *tasks, **rest)
        shutil.copytree(root, copy, symlinks=True)
        _past[key] = root, copy, result
        return result
    was, copy, result = _past[key]
    old, new = bytes(was), bytes(root)
    shutil.copytree(copy, root, symlinks=True, dirs_exist_ok=True)
    for path in root.rglob("*"):
        # Git's links and the records of the run name the place.
        if path.is_file() and "objects" not in path.parts and old in (text := path.read_bytes()):
            info = path.stat()
            path.write_bytes(text.replace(old, new))
            os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    for tree in (root, *root.glob(".architect-parallel-*")):
        git(tree, "update-index", "-q", "--refresh")
    return RunResult.model_validate_json(result.model_dump_json().replace(str(was), str(root)))


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
