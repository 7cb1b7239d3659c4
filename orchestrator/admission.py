"""Whether the machine has room for another task beside those that run."""

import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from orchestrator.config import ParallelConfig
from orchestrator.engine.base import EngineFeatures
from orchestrator.workflow.model import Task

_MEMINFO = Path("/proc/meminfo")
_LEAST_MEMORY = 256 * 1024**2
_LEAST_SHARE = 20
"""A twentieth of the memory stays free for everybody else."""
_LEAST_DISK = 256 * 1024**2

Readings = Callable[[], tuple[int | None, int]]
"""Gives the bytes of memory that are free, None where nobody knows, and those of disk."""


def readings(place: Path) -> Readings:
    """Make what measures this machine.

    Args:
        place: A directory on the disk that workers write to.
    """
    return lambda: (_available(), shutil.disk_usage(place).free)


def _available() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None


class Admission:
    """Lets a task in when what it asks for is free.

    What tasks are given by default they need not use, and processors are shared without harm: only
    what a task itself says it may use is set aside for it. Beyond that nothing starts while the
    machine is short of memory or disk.
    """

    def __init__(
        self,
        features: EngineFeatures,
        configs: Mapping[str, ParallelConfig],
        read: Readings,
        *,
        tell: Callable[[str], None],
    ) -> None:
        """Take what there is.

        Args:
            features: The engine's machine.
            configs: By task.
            read: Measures this machine.
            tell: Tells people why a task waits, once for each.
        """
        self._features = features
        self._configs = configs
        self._read = read
        self._tell = tell
        self._told: set[str] = set()

    def __call__(self, task: Task, running: Collection[Task]) -> bool:
        """Say whether a task may start beside others; what runs alone may always."""
        problem = self._problem([*running, task]) if running else None
        if problem is not None and task.id not in self._told:
            self._told.add(task.id)
            self._tell(f"task `{task.id}` waits: {problem}")
        return problem is None

    def _problem(self, tasks: Collection[Task]) -> str | None:
        cpus = sum(self._asked(task, "cpus") for task in tasks)
        memory = sum(self._asked(task, "memory") for task in tasks)
        if cpus > self._features.cpus:
            return f"with those that run it may use {cpus:g} of {self._features.cpus} CPUs"
        if memory > self._features.memory:
            ours, all_of_it = (int(one) // 1024**2 for one in (memory, self._features.memory))
            return f"with those that run it may use {ours} of {all_of_it} MiB of memory"
        free, disk = self._read()
        if free is not None and free < max(_LEAST_MEMORY, self._features.memory // _LEAST_SHARE):
            return f"{free // 1024**2} MiB of memory are free"
        if disk < _LEAST_DISK:
            return f"{disk // 1024**2} MiB of disk are free"
        return None

    def _asked(self, task: Task, name: str) -> float:
        if name not in task.settings.limits.model_fields_set:
            return 0
        return float(getattr(self._configs[task.id].limits, name) or 0)
