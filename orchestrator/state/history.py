"""What a run's record says of it, from any process: while it goes on, afterwards, or if it died.

Pure reading. What is cut short, as by a `kill -9`, or not understood is passed over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.errors import ConfigError, RunDiedError
from orchestrator.events import (
    Event,
    RunDone,
    RunStarted,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerProgress,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
    WorkerStopping,
)
from orchestrator.files.tail import LineTail
from orchestrator.results import RunResult, WorkerResult, sum_up
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import RunRecord
from orchestrator.worker_spec import WorkerSpec

EVENTS = "events.ndjson"
LONGEST_EVENT = 16 * 1024**2
"""Bytes; a result lists changed files, up to a bound. A longer event of an older version is passed
over: the results say the same."""
_NAMED = 10
"""Runs that an error message names."""


class RunState(StrEnum):
    """How far a run has come."""

    RUNNING = "running"
    FINISHED = "finished"
    DIED = "died"
    """Its process is gone, and not all of its workers have a result."""


class WorkerState(StrEnum):
    """How far a worker has come, by the last that its run said of it."""

    QUEUED = "queued"
    RETRYING = "retrying"
    PREPARING = "preparing"
    SETUP = "setup"
    RUNNING = "running"
    STOPPING = "stopping"
    TEARDOWN = "teardown"
    HARVESTING = "harvesting"
    CHECK = "check"
    DONE = "done"


@dataclass
class WorkerView:
    """What is known of one worker."""

    spec: WorkerSpec
    state: WorkerState = WorkerState.QUEUED
    container: str | None = None
    """The engine's id of the container, while it has one."""
    started_at: datetime | None = None
    steps: int | None = None
    cost: float | None = None
    result: WorkerResult | None = None


class RunHistory:
    """Follows one run's record."""

    def __init__(self, directory: RunDirectory, record: RunRecord) -> None:
        self.directory = directory
        self.record = record
        self.workers = {spec.worker_id: WorkerView(spec) for spec in record.workers}
        self._events = LineTail(directory.path / EVENTS, longest=LONGEST_EVENT)
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._result: RunResult | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._events.close()

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.directory.run_id

    def read(self) -> list[Event]:
        """Take in what has happened since the last call, or a part of it; nothing at the end."""
        while lines := self._events.read():
            events = list(_parsed(lines))
            for event in events:
                self._note(event)
            if events:
                return events
        return []

    def state(self) -> RunState:
        """Return how far the run has come."""
        # In this order: what a run leaves is whole once its lease is free.
        if self.directory.is_live():
            return RunState.RUNNING
        return RunState.DIED if self._whole() is None else RunState.FINISHED

    def result(self) -> RunResult:
        """Return the result of a run that is not live.

        Raises:
            RunDiedError: It has none.
        """
        result = self._whole()
        if result is None:
            raise RunDiedError(
                f"the process of run {self.run_id} died before its workers were done",
                hint=f"take it over: `orchestrator resume {self.run_id}`",
            )
        return result

    def worker_result(self, worker_id: int, *, live: bool = False) -> WorkerResult | None:
        """Return a worker's result, if it has one.

        Args:
            worker_id: The worker.
            live: The run goes on: a result that it has not told of may be an earlier attempt's.
        """
        told = self.workers[worker_id].result
        return told if told or live else self.directory.result(worker_id)

    def _whole(self) -> RunResult | None:
        while self.read():
            pass
        return self.directory.run_result() or self._result or self._summed_up()

    def _summed_up(self) -> RunResult | None:
        """Make the result of a run that ended just before it could say so."""
        found = [self.worker_result(number) for number in self.workers]
        results = [result for result in found if result is not None]
        if len(results) < len(self.workers):
            return None
        started, ended = self._first or self.record.created_at, self._last
        return sum_up(
            results,
            run_id=self.run_id,
            base=self.record.base,
            engine=self.record.engine,
            duration=(ended - started).total_seconds() if ended else 0.0,
        )

    def _note(self, event: Event) -> None:
        self._last = event.at
        match event:
            case RunStarted():
                self._first = self._first or event.at
            case RunDone(result=result):
                self._result = result
            case _:
                self._note_worker(event)

    def _note_worker(self, event: Event) -> None:
        about = event.result if isinstance(event, WorkerDone) else event
        worker = self.workers.get(getattr(about, "worker_id", 0))
        if worker is None:
            return
        match event:
            case WorkerPreparing():
                worker.state, worker.result = WorkerState.PREPARING, None
            case WorkerStage() | WorkerStageDone():
                _note_stage(worker, event)
            case WorkerStarted():
                worker.state, worker.started_at = WorkerState.RUNNING, event.at
                worker.container, worker.result = event.container, None
            case WorkerProgress():
                worker.steps, worker.cost = event.steps or worker.steps, event.cost or worker.cost
            case WorkerStopping():
                worker.state = WorkerState.STOPPING
            case WorkerHarvesting():
                worker.state, worker.container = WorkerState.HARVESTING, None
            case WorkerRetrying():
                worker.state, worker.container = WorkerState.RETRYING, None
            case WorkerDone(result=result):
                worker.state, worker.container = WorkerState.DONE, None
                worker.result = result
            case _:
                return


def _note_stage(worker: WorkerView, event: WorkerStage | WorkerStageDone) -> None:
    worker.container = None
    if isinstance(event, WorkerStage):
        worker.state, worker.container = WorkerState(event.stage), event.container


@cache
def _adapter() -> TypeAdapter[Event]:
    return TypeAdapter(Annotated[Event, Field(discriminator="type")])


def _parsed(lines: bytes) -> Iterator[Event]:
    for line in lines.splitlines():
        try:
            yield _adapter().validate_json(line)
        except ValidationError:
            # Cut short, or of a version that knows more than this one.
            continue


def attempts(run: RunDirectory, worker_id: int) -> list[tuple[int | None, Path]]:
    """Return the directories of a worker's earlier attempts with their numbers."""
    return [*run.attempts(worker_id), (None, run.worker(worker_id))]


def choose_run(
    runs: Sequence[RunDirectory], wanted: str | None = None, *, worker: int | None = None
) -> RunHistory:
    """Open a run that somebody asks for.

    Args:
        runs: All there are, the oldest first.
        wanted: Its id, or the beginning of it. Default: the newest.
        worker: A number that the newest is to have.

    Raises:
        ConfigError: There is no such run, or more than one.
    """
    candidates = runs if wanted is None else [named_run(runs, wanted)]
    for directory in reversed(candidates):
        record = directory.record()
        if record is not None and (worker is None or worker in _numbers(record)):
            return RunHistory(directory, record)
    if worker is not None:
        what = "no run" if wanted is None else f"run {candidates[0].run_id}"
        has = "has a" if wanted is None else "has no"
        raise ConfigError(
            f"{what} {has} worker {worker}", hint="`orchestrator ls --all` lists them"
        )
    if wanted is not None:
        raise ConfigError(f"the record of run {candidates[0].run_id} cannot be read")
    raise ConfigError(
        "there is no run in this repository", hint='start one: `orchestrator parallel "a task"`'
    )


def _numbers(record: RunRecord) -> frozenset[int]:
    return frozenset(spec.worker_id for spec in record.workers)


def named_run(runs: Sequence[RunDirectory], wanted: str) -> RunDirectory:
    """Find a run by its id or by the beginning of its id.

    Raises:
        ConfigError: There is no such run, or more than one.
    """
    found = [run for run in runs if run.run_id == wanted]
    found = found or [run for run in runs if wanted and run.run_id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"more than one run begins with `{wanted}`", hint=_names(found))
    raise ConfigError(f"no such run: `{wanted}`", hint=f"runs of this repository: {_names(runs)}")


def _names(runs: Sequence[RunDirectory]) -> str:
    shown = [run.run_id for run in runs[-_NAMED:]]
    more = ["..."] if len(runs) > _NAMED else []
    return ", ".join([*more, *shown]) or "none"
