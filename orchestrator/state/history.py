"""Read the state of a run from its files: while it runs, after its end, or after a crash.

This module writes nothing. Records that were cut short, as by `kill -9`, or that have an unknown
type are skipped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from pathlib import Path
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
    WorkerWaiting,
)
from orchestrator.files.tail import LineTail
from orchestrator.results import RunResult, WorkerResult, sum_up
from orchestrator.state.present_paths import run_result_in, worker_result_in
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import RunOutline, read_outline
from orchestrator.worker_spec import WorkerSpec

EVENTS = "events.ndjson"
LONGEST_EVENT = 16 * 1024**2
"""Maximum size in bytes of an event that is read; lists of files in events are cut off far below. A
longer event of an older version is skipped, since result files contain the same data.
"""
_NAMED = 10
"""Maximum number of runs that an error message names."""


class RunState(StrEnum):
    """State of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    DIED = "died"
    """The process of the run has died, and some of its workers have no result."""


class WorkerState(StrEnum):
    """State of a worker, according to the last recorded event about it.

    The value is the name of the state wherever people read it; `word_of` names final states too.
    """

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

    @property
    def sentence(self) -> str:
        """What a message says of a worker in this state, after its number."""
        return _SENTENCES[self]


_SENTENCES = {
    WorkerState.QUEUED: "is queued",
    WorkerState.RETRYING: "waits for its next attempt",
    WorkerState.PREPARING: "is being prepared",
    WorkerState.SETUP: "is being set up",
    WorkerState.RUNNING: "is running",
    WorkerState.STOPPING: "is being stopped",
    WorkerState.TEARDOWN: "is being torn down",
    WorkerState.HARVESTING: "has ended, and its work is being committed",
    WorkerState.CHECK: "has ended, and its commit is being checked",
    WorkerState.DONE: "has ended",
}


def word_of(state: WorkerState, result: WorkerResult | None, *, is_live: bool) -> str:
    """Return the name of a worker's present or final state, for people.

    A worker without a result, whose run's process died, is `died`.
    """
    if result is not None:
        return result.word
    return (state if is_live else RunState.DIED).value


@dataclass
class WorkerView:
    """The recorded state of one worker."""

    spec: WorkerSpec
    state: WorkerState = WorkerState.QUEUED
    waits: str | None = None
    """Why the worker does not start yet, as far as the run has recorded it."""
    container: str | None = None
    """The engine's id of the worker's present container; None if it has no container."""
    started_at: datetime | None = None
    steps: int | None = None
    cost: float | None = None
    result: WorkerResult | None = None


class RunHistory:
    """Reads the files of one run, and follows its events while it is in progress."""

    def __init__(self, directory: RunDirectory, record: RunOutline) -> None:
        self.directory = directory
        self.record = record
        self.workers = {spec.worker_id: WorkerView(spec) for spec in record.workers}
        self._events = LineTail(directory.path / EVENTS, longest=LONGEST_EVENT)
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._result: RunResult | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.directory.run_id

    def read(self) -> list[Event]:
        """Return the events since the last call (possibly none), and apply them to this object."""
        while lines := self._events.read():
            events = [_present(self.directory.path, one) for one in _parsed(lines)]
            for event in events:
                self._note(event)
            if events:
                return events
        return []

    def read_all(self) -> None:
        """Apply all events that were recorded until now."""
        while self.read():
            pass

    def state(self) -> RunState:
        """Return the state of the run."""
        # The order matters: the run's files are complete only once the lease is free.
        if self.directory.is_live():
            return RunState.RUNNING
        return RunState.DIED if self._whole() is None else RunState.FINISHED

    def sentence(self, worker_id: int) -> str:
        """Return what a message says of a worker now, after its number."""
        self.read_all()
        live = self.directory.is_live()
        result, state = self.worker_result(worker_id, live=live), self.workers[worker_id].state
        if result is not None:
            return f"{WorkerState.DONE.sentence}: {result.outcome}"
        return state.sentence if live else f"had no result when its run died (last: {state})"

    def result(self) -> RunResult:
        """Return the result of a run that is not live.

        Raises:
            RunDiedError: The run has no result.
        """
        result = self._whole()
        if result is None:
            raise RunDiedError(
                f"the process of run {self.run_id} died before its workers were done",
                hint=f"resume the run: `orchestrator resume {self.run_id}`",
            )
        return result

    def worker_result(self, worker_id: int, *, live: bool = False) -> WorkerResult | None:
        """Return a worker's result; None if the worker has no result.

        Args:
            worker_id: The worker.
            live: Whether the run is in progress. A result file without an event may then be from an
                earlier attempt, and is ignored.
        """
        told = self.workers[worker_id].result
        return told if told or live else self.directory.result(worker_id)

    def _whole(self) -> RunResult | None:
        self.read_all()
        return self.directory.run_result() or self._result or self._summed_up()

    def _summed_up(self) -> RunResult | None:
        """Return the result of a run that died after its last worker's end; else None."""
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
                self._begin_again()
            case RunDone(result=result):
                self._result = result
            case _:
                self._note_worker(event)

    def _begin_again(self) -> None:
        """Forget results: a resumed run repeats those that it keeps, and replaces the others."""
        self._result = None
        for worker in self.workers.values():
            if worker.result is not None:
                worker.state, worker.result = WorkerState.QUEUED, None

    def _note_worker(self, event: Event) -> None:
        about = event.result if isinstance(event, WorkerDone) else event
        worker = self.workers.get(getattr(about, "worker_id", 0))
        if worker is None:
            return
        worker.waits = event.reason if isinstance(event, WorkerWaiting) else None
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


def _present(run: Path, event: Event) -> Event:
    """Return an event with the present paths in its result: the repository may have been moved."""
    if isinstance(event, WorkerDone):
        return event.model_copy(update={"result": worker_result_in(run, event.result)})
    if isinstance(event, RunDone):
        return event.model_copy(update={"result": run_result_in(run, event.result)})
    return event


def _parsed(lines: bytes) -> Iterator[Event]:
    for line in lines.splitlines():
        try:
            yield _adapter().validate_json(line)
        except ValidationError:
            # The line was cut short, or a newer version wrote an event type that this version
            # lacks.
            continue


def attempts(run: RunDirectory, worker_id: int) -> list[tuple[int | None, Path]]:
    """Return number and directory of each attempt of a worker; the latest has number None."""
    return [*run.attempts(worker_id), (None, run.worker(worker_id))]


def choose_run(
    runs: Sequence[RunDirectory], wanted: str | None = None, *, worker: int | None = None
) -> RunHistory:
    """Return the history of the run that the user asks for.

    Args:
        runs: All runs, oldest first.
        wanted: The run's id, or the beginning of it. Default: the newest run that is not a test of
            a commit.
        worker: Number of a worker that the run must have.

    Raises:
        ConfigError: No run matches, or several do.
    """
    tasks = [run for run in runs if run.other_user is None and not run.is_test]
    candidates = tasks if wanted is None else [named_run(runs, wanted)]
    record = None
    for directory in reversed(candidates):
        record = read_outline(directory)
        if record is not None and (worker is None or worker in _numbers(record)):
            return RunHistory(directory, record)
    if wanted is not None and record is None:
        raise ConfigError(f"the record of run {candidates[0].run_id} is missing or unreadable")
    if worker is not None:
        what = "no run" if wanted is None else f"run {candidates[0].run_id}"
        has = "has a" if wanted is None else "has no"
        raise ConfigError(
            f"{what} {has} worker {worker}{_others(runs) if wanted is None else ''}",
            hint="list the workers with `orchestrator ls --all`",
        )
    raise ConfigError(
        "there is no run in this repository" + _others(runs),
        hint='start a run: `orchestrator parallel "a task"`',
    )


def _numbers(record: RunOutline) -> frozenset[int]:
    return frozenset(spec.worker_id for spec in record.workers)


def named_run(runs: Sequence[RunDirectory], wanted: str) -> RunDirectory:
    """Return the run whose id is a given text, or starts with the text.

    Raises:
        ConfigError: No run matches, or several do.
    """
    found = [run for run in runs if run.run_id == wanted]
    found = found or [run for run in runs if wanted and run.run_id.startswith(wanted)]
    if len(found) == 1:
        if (user := found[0].other_user) is not None:
            raise ConfigError(
                f"run {found[0].run_id} belongs to {user}, and you may not read it",
                hint=f"{user} can use this command on the run; `orchestrator ls` lists your own",
            )
        return found[0]
    if found:
        raise ConfigError(
            f"more than one run begins with `{wanted}`",
            hint=f"name one of the runs: {_names(found)}",
        )
    raise ConfigError(f"no such run: `{wanted}`", hint=f"runs of this repository: {_names(runs)}")


def _others(runs: Sequence[RunDirectory]) -> str:
    """Return a remark on the runs of other users; empty without such runs."""
    users = sorted({user for run in runs if (user := run.other_user) is not None})
    return f", except runs of {', '.join(users)} that you may not read" if users else ""


def _names(runs: Sequence[RunDirectory]) -> str:
    shown = [run.run_id for run in runs[-_NAMED:]]
    more = ["..."] if len(runs) > _NAMED else []
    return ", ".join([*more, *shown]) or "none"
