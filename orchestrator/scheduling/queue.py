"""Choose the workers that may start next, in the order of numbers or of a workflow's tasks."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.config.sizing import Demand, demand
from orchestrator.events import Notice
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.scheduling.admission import Admission, readings
from orchestrator.worker.context import RunContext
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.model import Task, Workflow
from orchestrator.workflow.order import Fits, Order, TaskOutcome
from orchestrator.workflow.planning import demand_of


@dataclass(frozen=True)
class Skipped:
    """A worker that will never run, and the reason."""

    spec: WorkerSpec
    reason: Reason | None
    """Reason in the worker's result; None if the worker was not needed, which is no failure."""
    message: str


class Queue(Protocol):
    """Chooses the workers that start next among the waiting workers."""

    def skips(self, waiting: Sequence[WorkerSpec]) -> Iterable[Skipped]:
        """Return waiting workers that will never run."""

    def next(
        self, waiting: Sequence[WorkerSpec], running: Sequence[WorkerSpec], *, free: int
    ) -> list[WorkerSpec]:
        """Return at most `free` waiting workers that should start now."""

    def note(self, spec: WorkerSpec, result: WorkerResult) -> None:
        """Record a worker's final result."""


def make_queue(run: RunContext) -> Queue:
    """Return a queue for the workers of a run."""
    admission = Admission(
        run.features,
        readings(run.directory.path),
        tell=lambda message: run.emit(Notice(message=message)),
    )
    config, cpus = run.config, run.features.cpus
    workflow, programs = run.request.workflow, run.request.programs
    if workflow is None:
        nothing = Demand(0.0, 0)
        return _Line(admission, demand(config, cpus=cpus) if config.auto_workers else nothing)
    set_aside = {task.id: demand_of(config, task, programs, cpus=cpus) for task in workflow.tasks}

    def has_room(task: Task, running: Collection[Task]) -> bool:
        beside = [set_aside[one.id] for one in running]
        return admission(f"task `{task.id}`", set_aside[task.id], beside)

    return _Ordered(workflow, has_room)


class _Line:
    """A queue of independent workers, which start in the order of their numbers."""

    def __init__(self, admission: Admission, each: Demand) -> None:
        self._admission = admission
        self._each = each

    def skips(self, waiting: Sequence[WorkerSpec]) -> Iterable[Skipped]:  # noqa: ARG002
        return ()

    def next(
        self, waiting: Sequence[WorkerSpec], running: Sequence[WorkerSpec], *, free: int
    ) -> list[WorkerSpec]:
        found: list[WorkerSpec] = []
        for spec in waiting[:free]:
            beside = [self._each] * (len(running) + len(found))
            if not self._admission(f"worker {spec.worker_id}", self._each, beside):
                break
            found.append(spec)
        return found

    def note(self, spec: WorkerSpec, result: WorkerResult) -> None:
        """Do nothing with the result, because no worker depends on another."""


class _Ordered:
    """A queue of a workflow's workers, which start as their dependencies allow."""

    def __init__(self, workflow: Workflow, fits: Fits) -> None:
        self._order = Order(workflow, fits)
        self._fates: dict[str, TaskOutcome] = {}

    def skips(self, waiting: Sequence[WorkerSpec]) -> Iterable[Skipped]:
        named = {_name(spec): spec for spec in waiting}
        return [
            Skipped(
                spec=named[skip.task.id],
                reason=None if skip.fate is TaskOutcome.UNNEEDED else Reason.DEPENDENCY,
                message=f"skipped: {skip.because}",
            )
            for skip in self._order.skips(named, self._fates)
        ]

    def next(
        self, waiting: Sequence[WorkerSpec], running: Sequence[WorkerSpec], *, free: int
    ) -> list[WorkerSpec]:
        named = {_name(spec): spec for spec in waiting}
        beside = [_name(spec) for spec in running]
        return [named[task.id] for task in self._order.next(named, beside, self._fates, free=free)]

    def note(self, spec: WorkerSpec, result: WorkerResult) -> None:
        self._fates[_name(spec)] = _fate(result)


def _name(spec: WorkerSpec) -> str:
    if spec.name is None:
        raise ValueError(f"worker {spec.worker_id} has no task of the workflow")
    return spec.name


def _fate(result: WorkerResult) -> TaskOutcome:
    if result.status is Status.SUCCESS:
        return TaskOutcome.SUCCEEDED
    return TaskOutcome.SKIPPED if result.reason is Reason.DEPENDENCY else TaskOutcome.FAILED
