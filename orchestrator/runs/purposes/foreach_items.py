"""Determine the items of a `foreach`: from files of the base commit, or from a command's output."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from threading import Lock

from orchestrator.agents.settings_check import choose_agent
from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Emit, ignore
from orchestrator.base.results import RunResult, Status
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.parsing.foreach import Expand, expander
from orchestrator.engine import connected
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.planning.reservation import base_commit
from orchestrator.runs.runner import ParallelRunner
from orchestrator.sandbox.supervision.output import log_files
from orchestrator.state.run_directory import RunDirectory

LONGEST_LIST = 4 * 1024**2
"""Maximum size in bytes of a file or an output from which items are read."""
_FILES = frozenset({b"100644", b"100755"})
_STOPPED = "interrupted"
_TOO_LONG = f"the command of `foreach` printed more than {LONGEST_LIST // 1024**2} MiB"
Watch = Callable[[str], AbstractContextManager[Emit]]
"""Function that takes a command and returns a context that shows the command's progress."""


def _without_progress(command: str) -> AbstractContextManager[Emit]:  # noqa: ARG001
    return nullcontext(ignore)


class Expansion:
    """Determines the items of a workflow's `foreach` tasks. Another thread may call `cancel`."""

    def __init__(
        self,
        config: ParallelConfig,
        root: Path,
        *,
        watch: Watch = _without_progress,
        engine: ContainerEngine | None = None,
        runs: bool = True,
    ) -> None:
        """Store the arguments; nothing is read or run yet.

        Args:
            config: The run's configuration: base commit, and image and limits for commands.
            root: Any directory in the repository.
            watch: Shows the progress of a command.
            engine: The container engine. Default: Docker.
            runs: Whether to run commands; otherwise tasks with a command are not expanded.
        """
        self._config = config
        self._root = root
        self._watch = watch
        self._engine = engine
        self._runs = runs
        self._lock = Lock()
        self._runner: ParallelRunner | None = None
        self._stopped = False

    def cancel(self, *, kill: bool = False) -> None:
        """Stop the running command, and start no further command.

        Args:
            kill: Whether to kill the worker without a grace period.
        """
        with self._lock:
            self._stopped, runner = True, self._runner
        if runner is not None:
            # protection: foreach-command-can-be-stopped
            runner.cancel(kill=kill)

    def expand(self) -> Expand:
        """Return a function that determines the items of a `foreach` task.

        Raises:
            OrchestratorError: The base commit does not exist.
        """
        repository = Repository(self._root)
        repository.resolve(self._config.base)

        @cache
        def files() -> dict[str, tuple[str, int]]:
            """Return object id and size of each file in the base commit, by path."""
            found = {}
            # protection: foreach-includes-uncommitted-files
            base = base_commit(repository, self._config)
            listing = repository.git.run("ls-tree", "-r", "-l", "-z", "--full-tree", base)
            for entry in filter(None, listing.split(b"\0")):
                facts, _, path = entry.partition(b"\t")
                mode, _, name, size = facts.split()
                if mode in _FILES:
                    found[os.fsdecode(path)] = (name.decode(), int(size))
            return found

        def read(path: str) -> bytes | None:
            if path not in files():
                return None
            name, size = files()[path]
            if size > LONGEST_LIST:
                raise ConfigError(
                    f"`{path}` is larger than {LONGEST_LIST // 1024**2} MiB", key="foreach.too-long"
                )
            return repository.git.run("cat-file", "blob", name)

        return expander(files=files, read=read, run=self._output_of if self._runs else None)

    def _output_of(self, command: str) -> str:
        """Run a command in a container of a temporary worker, and return its output."""
        config = self._config
        closed = config.isolation.model_copy(update={"network": "none", "ports": {}})
        update = {
            "tasks": (command,), "models": (), "workers": 1, "agent_cli": "shell",
            "image": choose_agent(config, None)[1], "budget_per_worker": None,
            "isolation": closed, "project": type(config.project)(),
        }  # fmt: skip
        config = config.model_copy(update=update)
        with self._watch(command) as emit:
            runner = ParallelRunner(config, self._root, emit=emit, engine=self._engine)
            with self._lock:
                self._runner = runner
                if self._stopped:
                    raise ConfigError(
                        f"the command of `foreach` was not started: {_STOPPED}",
                        key="foreach.stopped",
                    )
            try:
                return self._read_output(runner.execute())
            finally:
                self._runner = None

    def _read_output(self, result: RunResult) -> str:
        (worker,) = result.results
        try:
            if self._stopped:
                raise ConfigError(
                    f"the command of `foreach` was stopped: {_STOPPED}", key="foreach.stopped"
                )
            if worker.status is not Status.SUCCESS:
                cause = worker.message or worker.reason
                raise ConfigError(f"the command of `foreach` failed: {cause}", key="foreach.failed")
            directory = RunDirectory(Repository(self._root).state_dir / "runs" / result.run_id)
            stdout, _ = log_files(directory.worker(worker.worker_id))
            with stdout.open("rb") as file:
                said = file.read(LONGEST_LIST + 1)
        finally:
            with connected(self._engine) as connection:
                cleanup(self._root, engine=connection, run_id=result.run_id, purge=True)
        if len(said) > LONGEST_LIST:
            raise ConfigError(_TOO_LONG, key="foreach.too-long")
        return said.decode("utf-8", "surrogateescape")
