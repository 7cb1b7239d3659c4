"""Choose the workers that may start next, in the order of numbers or of a workflow's tasks.

A worker starts only while the machine has enough free CPUs, memory and disk for it.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.base import machine
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.sizing import Demand, demand, fits
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.config.workflow.order import Order, Shortage, TaskOutcome, Wait
from orchestrator.config.workflow.planning import demand_of
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.worker.context import RunContext

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


@dataclass(frozen=True)
class Skipped:
    """A worker that will never run, and the reason."""

    spec: WorkerSpec
    reason: Reason | None
    """Reason in the worker's result; None if the worker was not needed, which is no failure."""
    message: str


@dataclass(frozen=True)
class Next:
    """The workers that should start now, and why others do not."""

    started: list[WorkerSpec]
    held: Mapping[int, Wait]
    """Why workers do not start even if a slot is free, by number."""


class Queue(Protocol):
    """Chooses the workers that start next among the waiting workers."""

    def skips(self, waiting: Sequence[WorkerSpec]) -> Iterable[Skipped]:
        """Return waiting workers that will never run."""

    def next(
        self, waiting: Sequence[WorkerSpec], running: Sequence[WorkerSpec], *, free: int
    ) -> Next:
        """Return at most `free` waiting workers that should start now, and why others wait."""

    def reasons_to_wait(self, waiting: Sequence[WorkerSpec]) -> Mapping[int, Wait]:
        """Return which waiting workers cannot start before others end, and why, by number."""

    def note(self, spec: WorkerSpec, result: WorkerResult) -> None:
        """Record a worker's final result."""


def make_queue(run: RunContext) -> Queue:
    """Return a queue for the workers of a run."""
    # The engine may be on another machine.
    free = readings(run.directory.path, memory=not run.streams)
    admission = Admission(run.features, free)
    config, cpus = run.config, run.features.cpus
    workflow, programs = run.request.workflow, run.request.programs
    if workflow is None:
        nothing = Demand(0.0, 0)
        return _Line(admission, demand(config, cpus=cpus) if config.auto_workers else nothing)
    set_aside = {task.id: demand_of(config, task, programs, cpus=cpus) for task in workflow.tasks}

    def shortage(task: Task, running: Collection[Task]) -> str | None:
        return admission.shortage(set_aside[task.id], [set_aside[task.id] for task in running])

    return _Ordered(workflow, shortage)


class _Line:
    """A queue of independent workers, which start in the order of their numbers."""

    def __init__(self, admission: Admission, each: Demand) -> None:
        self._admission = admission
        self._each = each

    def skips(self, waiting: Sequence[WorkerSpec]) -> Iterable[Skipped]:  # noqa: ARG002
        return ()

    def next(
        self, waiting: Sequence[WorkerSpec], running: Sequence[WorkerSpec], *, free: int
    ) -> Next:
        found: list[WorkerSpec] = []
        for spec in waiting[:free]:
            beside = [self._each] * (len(running) + len(found))
            problem = self._admission.shortage(self._each, beside)
            # protection: admission-applies-without-workflow
            if problem is not None:
                left = waiting[len(found) :]
                return Next(found, {spec.worker_id: Wait("machine", problem) for spec in left})
            found.append(spec)
        return Next(found, {})

    def reasons_to_wait(self, waiting: Sequence[WorkerSpec]) -> Mapping[int, Wait]:  # noqa: ARG002
        return {}

    def note(self, spec: WorkerSpec, result: WorkerResult) -> None:
        """Do nothing with the result, because no worker depends on another."""


class _Ordered:
    """A queue of a workflow's workers, which start as their dependencies allow."""

    def __init__(self, workflow: Workflow, shortage: Shortage) -> None:
        self._order = Order(workflow, shortage)
        self._fates: dict[str, TaskOutcome] = {}

    def skips(self, waiting: Sequence[WorkerSpec]) -> Iterable[Skipped]:
        named = {_name(spec): spec for spec in waiting}
        return [
            Skipped(
                spec=named[skip.task.id],
                reason=None if skip.fate is TaskOutcome.UNNEEDED else Reason.DEPENDENCY,
                message=skip.because,
            )
            for skip in self._order.skips(named, self._fates)
        ]

    def next(
        self, waiting: Sequence[WorkerSpec], running: Sequence[WorkerSpec], *, free: int
    ) -> Next:
        named = {_name(spec): spec for spec in waiting}
        beside = [_name(spec) for spec in running]
        choice = self._order.next(named, beside, self._fates, free=free)
        held = {named[name].worker_id: wait for name, wait in choice.held.items()}
        return Next([named[task.id] for task in choice.started], held)

    def reasons_to_wait(self, waiting: Sequence[WorkerSpec]) -> Mapping[int, Wait]:
        named = {_name(spec): spec for spec in waiting}
        found = self._order.reasons_to_wait(named, self._fates)
        return {named[name].worker_id: wait for name, wait in found.items()}

    def note(self, spec: WorkerSpec, result: WorkerResult) -> None:
        fate = TaskOutcome.SUCCEEDED
        if result.status is not Status.SUCCESS:
            skipped = result.reason is Reason.DEPENDENCY
            fate = TaskOutcome.SKIPPED if skipped else TaskOutcome.FAILED
        self._fates[_name(spec)] = fate


def _name(spec: WorkerSpec) -> str:
    if spec.name is None:
        raise ValueError(f"worker {spec.worker_id} has no task of the workflow")
    return spec.name
