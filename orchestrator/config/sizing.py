"""How many workers a machine has room for."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from orchestrator.config.run import ParallelConfig

DEFAULT_CPUS = 2.0


_ROUNDING = 1e-6


class Demand(NamedTuple):
    """What a worker may use of a machine."""

    cpus: float
    memory: int
    """Bytes."""


def this_machine() -> Demand:
    """Return the CPUs and the memory that this process may use."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Demand(float(len(os.sched_getaffinity(0))), memory)


def cpus_of(config: ParallelConfig, *, cpus: float) -> float:
    """Return the CPUs of a worker.

    Args:
        config: The settings of the worker.
        cpus: The CPUs of the machine.
    """
    return config.limits.cpus or min(DEFAULT_CPUS, cpus)


def demand(config: ParallelConfig, *, cpus: float) -> Demand:
    """Return what a worker and its services may use together.

    Args:
        config: The run.
        cpus: What the machine has.
    """
    services = config.project.services.values()
    own = cpus_of(config, cpus=cpus)
    memory = config.limits.memory + sum(service.memory for service in services)
    return Demand(own + sum(service.cpus for service in services), memory)


def fits(demands: Iterable[Demand], *, cpus: float, memory: int) -> bool:
    """Check whether a machine has what several workers may use at one time.

    Args:
        demands: Of each worker.
        cpus: What the machine has.
        memory: The same, in bytes.
    """
    listed = list(demands)
    # Tenths of a CPU do not add up exactly.
    enough = sum(one.cpus for one in listed) <= cpus + _ROUNDING
    return enough and sum(one.memory for one in listed) <= memory


def room(config: ParallelConfig, *, cpus: float, memory: int) -> int:
    """Return how many workers a machine has room for at once, each with its services.

    Args:
        config: The run.
        cpus: What the machine has.
        memory: The same, in bytes.
    """
    each = demand(config, cpus=cpus)
    return room_for([each] * config.max_workers, cpus=cpus, memory=memory)


def room_for(demands: Sequence[Demand], *, cpus: float, memory: int) -> int:
    """Return how many workers a machine has room for at once, whichever they are; one at least.

    Args:
        demands: Of each worker.
        cpus: What the machine has.
        memory: The same, in bytes.
    """
    count = 1
    while count < len(demands) and fits(largest(demands, count + 1), cpus=cpus, memory=memory):
        count += 1
    return count


def largest(demands: Sequence[Demand], count: int) -> list[Demand]:
    """Return the most that so many workers may use, CPUs and memory each for themselves."""
    cpus = sorted((one.cpus for one in demands), reverse=True)[:count]
    memory = sorted((one.memory for one in demands), reverse=True)[:count]
    return [Demand(*pair) for pair in zip(cpus, memory, strict=True)]
