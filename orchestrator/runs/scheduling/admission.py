"""Decide whether the machine has enough free CPUs, memory and disk for another worker."""

import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from orchestrator.base import machine
from orchestrator.config.sizing import Demand, fits
from orchestrator.engine.interface.features import EngineFeatures

_LEAST_MEMORY = 256 * 1024**2
_LEAST_SHARE = 20
"""Divisor of the machine's memory: one twentieth of the memory stays free for other programs."""
_LEAST_DISK = 256 * 1024**2

Readings = Callable[[], tuple[int | None, int]]
"""Function that returns the free memory (None if unknown) and the free disk space in bytes."""


def readings(place: Path, *, memory: bool = True) -> Readings:
    """Return a function that measures the free memory and disk space of this machine.

    Args:
        place: A directory on the disk that workers write to.
        memory: Whether workers use the memory of this machine.
    """

    def measure() -> tuple[int | None, int]:
        return machine.free_memory() if memory else None, shutil.disk_usage(place).free

    return measure


class Admission:
    """Decides whether another worker may start beside the running workers.

    The resources that are reserved for the worker must be free. In addition, no worker starts while
    the machine is short of memory or disk space.
    """

    def __init__(self, features: EngineFeatures, read: Readings) -> None:
        """Store the arguments.

        Args:
            features: The features of the engine's machine.
            read: Measures this machine.
        """
        self._features = features
        self._read = read

    def shortage(self, asks: Demand, running: Collection[Demand]) -> str | None:
        """Return why a worker may not start now; always None if no worker is running.

        Args:
            asks: Resources reserved for the worker.
            running: Resources reserved for the running workers.
        """
        if not running:
            return None
        demands, machine = [*running, asks], self._features
        # protection: tasks-wait-for-free-cpus-and-memory
        if not fits(demands, cpus=machine.cpus, memory=machine.memory):
            cpus = sum(demand.cpus for demand in demands)
            if not fits([Demand(cpus, 0)], cpus=machine.cpus, memory=0):
                return (
                    f"the running workers and this worker need about {cpus:g} CPUs, "
                    f"but the machine has {machine.cpus}"
                )
            ours = sum(demand.memory for demand in demands) // 1024**2
            all_of_it = machine.memory // 1024**2
            return (
                f"the running workers and this worker need about {ours} MiB of memory, "
                f"but the machine has {all_of_it}"
            )
        free, disk = self._read()
        # protection: no-start-while-memory-is-short
        if free is not None and free < max(_LEAST_MEMORY, machine.memory // _LEAST_SHARE):
            return f"only {free // 1024**2} MiB of memory are free"
        # protection: no-start-while-disk-is-full
        if disk < _LEAST_DISK:
            return f"only {disk // 1024**2} MiB of disk are free"
        return None
