"""Where the items of a `foreach` come from: the commit that a run starts from, and a container."""

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from orchestrator.cleanup import cleanup
from orchestrator.config import ParallelConfig
from orchestrator.engine import connected
from orchestrator.engine.base import ContainerEngine
from orchestrator.errors import ConfigError
from orchestrator.logs import log_files
from orchestrator.preflight import choose_agent
from orchestrator.record import RunDirectory
from orchestrator.repository import Repository
from orchestrator.results import Status
from orchestrator.runner import ParallelRunner
from orchestrator.workflow.foreach import Expand, expander

LONGEST_LIST = 4 * 1024**2
"""Bytes of a file or an output that items are read from."""
_FILES = frozenset({b"100644", b"100755"})


def expand_from(
    config: ParallelConfig,
    root: Path,
    *,
    engine: ContainerEngine | None = None,
    runs: bool = True,
) -> Expand:
    """Make what gives the items of a workflow's tasks.

    Args:
        config: The run's wishes: its base, and for commands its image and limits.
        root: Anywhere in the repository.
        engine: Default: the Docker engine.
        runs: Commands are run; else their tasks stay as they are.
    """
    repository = Repository(root)
    base = repository.resolve(config.base)
    listed = cache(partial(_listed, repository, base))
    run: Callable[[str], str] | None = partial(_printed, config, root, engine) if runs else None
    return expander(files=listed, read=lambda path: _read(repository, listed(), path), run=run)


def _listed(repository: Repository, base: str) -> dict[str, tuple[str, int]]:
    """Give the object and the size of each file of a commit."""
    found = {}
    listing = repository.git.run("ls-tree", "-r", "-l", "-z", "--full-tree", base)
    for entry in filter(None, listing.split(b"\0")):
        facts, _, path = entry.partition(b"\t")
        mode, _, name, size = facts.split()
        if mode in _FILES:
            found[os.fsdecode(path)] = (name.decode(), int(size))
    return found


def _read(repository: Repository, files: dict[str, tuple[str, int]], path: str) -> bytes | None:
    if path not in files:
        return None
    name, size = files[path]
    if size > LONGEST_LIST:
        raise ConfigError(f"`{path}` has more than {LONGEST_LIST // 1024**2} MiB")
    return repository.git.run("cat-file", "blob", name)


def _printed(
    config: ParallelConfig, root: Path, engine: ContainerEngine | None, command: str
) -> str:
    """Run a command where the tasks would run, and give what it prints; nothing of it stays."""
    only = config.model_copy(
        update={
            "tasks": (command,),
            "models": (),
            "workers": 1,
            "agent_cli": "shell",
            "image": choose_agent(config, None)[1],
            "budget_per_worker": None,
            "isolation": config.isolation.model_copy(update={"network": "none", "ports": {}}),
            "project": type(config.project)(),
        }
    )
    result = ParallelRunner(only, root, engine=engine).execute()
    (worker,) = result.results
    try:
        if worker.status is not Status.SUCCESS:
            raise ConfigError(f"the command failed: {worker.message or worker.reason}")
        directory = RunDirectory(Repository(root).state_dir / "runs" / result.run_id)
        stdout, _ = log_files(directory.worker(worker.worker_id))
        with stdout.open("rb") as file:
            said = file.read(LONGEST_LIST + 1)
    finally:
        with connected(engine) as connection:
            cleanup(root, engine=connection, run_id=result.run_id, purge=True)
    if len(said) > LONGEST_LIST:
        raise ConfigError(f"the command printed more than {LONGEST_LIST // 1024**2} MiB")
    return said.decode("utf-8", "replace")
