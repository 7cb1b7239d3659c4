"""Calculate how many workers fit on a machine."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from orchestrator.base import machine
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.presets import PRESETS
from orchestrator.config.settings.run import ParallelConfig

DEFAULT_CPUS = 2.0
_SHARE = 0.5
"""Share of its default limits that a worker is expected to use, so that two workers fit on a
machine with 2 CPUs and 8 GB."""

_ROUNDING = 1e-6


class Demand(NamedTuple):
    """CPUs and memory that a worker needs, or that a machine has."""

    cpus: float
    memory: int
    """Memory in bytes."""


def this_machine() -> Demand:
    """Return the CPUs and the memory that are available to this process."""
    return Demand(float(machine.cpu_count()), machine.total_memory())


def cpus_of(config: ParallelConfig, *, cpus: float) -> float:
    """Return the number of CPUs that a worker may use."""
    return config.limits.cpus or min(DEFAULT_CPUS, cpus)


def demand(config: ParallelConfig, *, cpus: float) -> Demand:
    """Return the CPUs and memory that are reserved for a worker and its services.

    Limits that the user chose are reserved in full, of the defaults only a share.
    """
    services = config.project.services.values()
    own, memory = config.limits.cpus or cpus_of(config, cpus=cpus) * _SHARE, config.limits.memory
    if not memory_was_chosen(config):
        memory = int(memory * _SHARE)
    memory += sum(service.memory for service in services)
    return Demand(own + sum(service.cpus for service in services), memory)


def memory_was_chosen(config: ParallelConfig) -> bool:
    """Return whether the user set the memory limit of workers.

    All settings of a detached or resumed run count as set, so the limit is compared with the
    defaults instead.
    """
    preset = PRESETS[config.preset]["limits"].get("memory") if config.preset else None
    # protection: presets-values-do-not-count-as-requested
    return config.limits.memory not in (preset, Limits().memory)


def fits(demands: Iterable[Demand], *, cpus: float, memory: int) -> bool:
    """Return whether workers fit on a machine at the same time.

    Args:
        demands: CPUs and memory of each worker.
        cpus: CPUs of the machine.
        memory: Memory of the machine in bytes.
    """
    listed = list(demands)
    # Sums of fractions of CPUs have rounding errors.
    enough = sum(demand.cpus for demand in listed) <= cpus + _ROUNDING
    return enough and sum(demand.memory for demand in listed) <= memory


def room(config: ParallelConfig, *, cpus: float, memory: int) -> int:
    """Return how many of a run's workers, with services, fit on a machine at once; at least 1.

    Args:
        config: The run's configuration.
        cpus: CPUs of the machine.
        memory: Memory of the machine in bytes.
    """
    each = demand(config, cpus=cpus)
    return room_for([each] * config.max_workers, cpus=cpus, memory=memory)


def room_for(demands: Sequence[Demand], *, cpus: float, memory: int) -> int:
    """Return how many workers fit on a machine, whichever of `demands` run at once; at least 1.

    Args:
        demands: CPUs and memory of each worker.
        cpus: CPUs of the machine.
        memory: Memory of the machine in bytes.
    """
    count = 1
    while count < len(demands) and fits(largest(demands, count + 1), cpus=cpus, memory=memory):
        count += 1
    return count


def largest(demands: Sequence[Demand], count: int) -> list[Demand]:
    """Return the worst case for `count` workers: the largest CPU and memory demands, paired."""
    cpus = sorted((demand.cpus for demand in demands), reverse=True)[:count]
    memory = sorted((demand.memory for demand in demands), reverse=True)[:count]
    return [Demand(*pair) for pair in zip(cpus, memory, strict=True)]
