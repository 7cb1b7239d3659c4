"""Derive the phases of every worker from the events of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from orchestrator.events import (
    Event,
    RunStarted,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
    WorkerStopping,
)
from orchestrator.reports.phase import Phase, PhaseKind

_AFTER_STAGE: Mapping[str, PhaseKind] = {
    "setup": PhaseKind.START,
    "teardown": PhaseKind.STOP,
    "check": PhaseKind.HARVEST,
}
"""For each stage, the phase of a worker that follows it."""


def phases_of(events: Iterable[Event], until: datetime) -> dict[int, tuple[Phase, ...]]:
    """Return the phases of each worker.

    Args:
        events: The events of the run, first event first.
        until: End of the recorded time, for phases that have not ended.
    """
    workers: dict[int, _Worker] = {}
    for event in events:
        if isinstance(event, RunStarted):
            for spec in event.workers:
                # A resumed run records its start again.
                if spec.worker_id not in workers:
                    workers[spec.worker_id] = _Worker(Phase(
                        kind=PhaseKind.QUEUE, start=event.at, end=event.at, is_open=True
                    ))  # fmt: skip
            continue
        about = event.result if isinstance(event, WorkerDone) else event
        worker = workers.get(getattr(about, "worker_id", 0))
        if worker is not None:
            worker.note(event)
    return {number: worker.all(until) for number, worker in workers.items()}


@dataclass
class _Worker:
    """The phases of one worker up to the latest event."""

    current: Phase | None
    ended: list[Phase] = field(default_factory=list)
    attempt: int = 1

    def note(self, event: Event) -> None:
        match event:
            case WorkerPreparing():
                self._begin(PhaseKind.PREPARE, event.at)
            case WorkerStage():
                self._begin(PhaseKind(event.stage), event.at, name=event.name)
            case WorkerStageDone():
                self._end_stage(event)
            case WorkerStarted():
                self._begin(PhaseKind.AGENT, event.at)
            case WorkerStopping():
                self._begin(PhaseKind.STOP, event.at)
            case WorkerHarvesting():
                self._begin(PhaseKind.HARVEST, event.at)
            case WorkerRetrying():
                self.attempt = event.attempt
                self._begin(PhaseKind.RETRY if event.counted else PhaseKind.PROVIDER, event.at)
            case WorkerDone():
                self._end(event.at)
            case _:
                return

    def _end_stage(self, event: WorkerStageDone) -> None:
        current = self.current
        if current is not None and current.kind == event.stage:
            self.current = current.model_copy(update={"problem": event.problem})
        self._begin(_AFTER_STAGE[event.stage], event.at)

    def _begin(self, kind: PhaseKind, at: datetime, *, name: str | None = None) -> None:
        self._end(at)
        self.current = Phase(
            kind=kind, start=at, end=at, is_open=True, attempt=self.attempt, name=name
        )

    def _end(self, at: datetime) -> None:
        if self.current is not None:
            # The clock may have been set back.
            end = max(at, self.current.start)
            self.ended.append(self.current.model_copy(update={"end": end, "is_open": False}))
        self.current = None

    def all(self, until: datetime) -> tuple[Phase, ...]:
        if self.current is None:
            return tuple(self.ended)
        last = self.current.model_copy(update={"end": max(until, self.current.start)})
        return (*self.ended, last)
