"""Which worker gets which task and model. Pure."""

import os
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from orchestrator.config import ParallelConfig

DEFAULT_MODEL = "default"
DEFAULT_CPUS = 2.0
_ROUNDING = 1e-6


class WorkerSpec(BaseModel):
    """One worker's job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker_id: int
    task: str
    model: str | None
    name: str | None = None
    """The id of its task, in a workflow."""
    required: bool = True
    """Whether the run fails with it."""

    @property
    def model_name(self) -> str:
        """The model as results show it."""
        return self.model or DEFAULT_MODEL

    @property
    def directory(self) -> str:
        """The worktree's name at the repository's top level."""
        return f".architect-parallel-{self.worker_id}"

    @property
    def branch(self) -> str:
        """The worker's branch, without `refs/heads/`."""
        return f"architect/parallel-{self.worker_id}"


class Demand(NamedTuple):
    """What a worker may use of a machine."""

    cpus: float
    memory: int
    """Bytes."""


def this_machine() -> Demand:
    """Return the CPUs and the memory that this process may use."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Demand(float(len(os.sched_getaffinity(0))), memory)


def demand(config: ParallelConfig, *, cpus: float) -> Demand:
    """Return what a worker and its services may use together.

    Args:
        config: The run.
        cpus: What the machine has.
    """
    services = config.project.services.values()
    own = config.limits.cpus or min(DEFAULT_CPUS, cpus)
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
    """Say how many workers a machine has room for at once, each with its services.

    Args:
        config: The run.
        cpus: What the machine has.
        memory: The same, in bytes.
    """
    each = demand(config, cpus=cpus)
    return room_for([each] * config.max_workers, cpus=cpus, memory=memory)


def room_for(demands: Sequence[Demand], *, cpus: float, memory: int) -> int:
    """Say how many workers a machine has room for at once, whichever they are; one at least.

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


def job_count(config: ParallelConfig) -> int:
    """Count the workers of a run: none of its tasks and models is dropped."""
    return max(config.workers, len(config.tasks), len(config.models))


def plan_workers(config: ParallelConfig, *, first: int = 1) -> tuple[WorkerSpec, ...]:
    """Give every worker its task and model.

    Args:
        config: The run.
        first: The lowest worker number.
    """
    count = job_count(config)
    tasks = chain(config.tasks, repeat(config.tasks[0]))
    models = chain(config.models, repeat(config.model))
    numbers = range(first, first + count)
    return tuple(
        WorkerSpec(worker_id=number, task=task, model=model)
        for number, task, model in zip(numbers, tasks, models, strict=False)
    )


def repeated_task_notice(config: ParallelConfig, *, workers_given: bool) -> str | None:
    """Say so when nobody asked for the first task to be run again.

    Args:
        config: The run.
        workers_given: Somebody chose the number of workers; it is not the default.
    """
    listed = max(len(config.tasks), len(config.models))
    repeated = job_count(config) - len(config.tasks)
    models_ask_for_it = len(config.models) >= config.workers
    if workers_given or repeated <= 0 or models_ask_for_it:
        return None
    return (
        f"the first task is run {repeated + 1} times because `--workers` is {config.workers} "
        f"by default; `--workers {listed}` runs only what was listed"
    )
