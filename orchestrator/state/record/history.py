"""Read the state of a run from its files: while it runs, after its end, or after a crash.

This module writes nothing. Records that were cut short, as by `kill -9`, or that have an unknown
type are skipped.
"""

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.base.errors import ConfigError, RunDiedError
from orchestrator.base.events import Event, RunDone, WorkerDone
from orchestrator.base.files.tail import LineTail
from orchestrator.base.results import RunResult, WorkerResult, sum_up
from orchestrator.state.present_paths import run_result_in, worker_result_in
from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.states import RunState
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import RunOutline, read_outline

EVENTS = "events.ndjson"
LONGEST_EVENT = 16 * 1024**2
"""Maximum size in bytes of an event that is read; lists of files in events are cut off far below. A
longer event of an older version is skipped, since result files contain the same data.
"""
LIVE = "1"
"""First character of the version of a live run."""
_NAMED = 10
"""Maximum number of runs that an error message names."""


class RunHistory:
    """Reads the files of one run, and follows its events while it is in progress. Thread-safe."""

    def __init__(self, directory: RunDirectory, record: RunOutline) -> None:
        self.directory = directory
        self.record = record
        self._view = RunView(
            run_id=directory.run_id,
            base=record.base,
            engine=record.engine,
            top=record.top,
            directory=directory.path,
            started_at=record.created_at,
            by_number={
                spec.worker_id: WorkerView(
                    spec=spec, position=position, directory=directory.worker(spec.worker_id)
                )
                for position, spec in enumerate(record.workers, start=1)
            },
        )
        self._events = LineTail(directory.path / EVENTS, longest=LONGEST_EVENT)
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._events.close()

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.directory.run_id

    @property
    def workers(self) -> Mapping[int, WorkerView]:
        """The workers by their numbers, as of the last call of `read`."""
        return self._view.by_number

    def read(self) -> list[Event]:
        """Return the events since the last call (possibly none), and apply them to the workers."""
        with self._lock:
            while lines := self._events.read():
                events = []
                for line in lines.splitlines():
                    try:
                        event = _present(self.directory.path, _adapter().validate_json(line))
                    except ValidationError:
                        # The line was cut short, or a newer version wrote an event type that this
                        # version lacks.
                        continue
                    self._view.apply(event)
                    events.append(event)
                if events:
                    return events
        return []

    def read_all(self) -> None:
        """Apply all events that were recorded until now."""
        while self.read():
            pass

    def snapshot(self, now: datetime | None = None) -> RunView:
        """Return the run as of now, with all events and results that were recorded.

        Args:
            now: End of the recorded time of a live run. Default: the current time.
        """
        with self._lock:
            # The order matters: a run that is not live has written all of its events, and a run
            # that ends meanwhile is live, with all its events.
            is_live = self.directory.is_live()
            self.read_all()
            now = now or datetime.now(UTC)
            if is_live:
                # A result file without an event may be from an earlier attempt: it is ignored.
                return self._view.snapshot(now)
            result = self._whole()
            state = RunState.DIED if result is None else RunState.FINISHED
            return self._view.snapshot(
                now, state=state, result=result, results=self._results_without_event()
            )

    def sentence(self, worker_id: int) -> str:
        """Return what a message says of a worker now, after its number."""
        return self.snapshot().by_number[worker_id].sentence

    def version(self) -> str:
        """Return a text that changes whenever the run's record changes."""
        marks = [LIVE if self.directory.is_live() else "0"]
        for name in (EVENTS, "result.json"):
            try:
                info = (self.directory.path / name).stat()
                marks.append(f"{info.st_size:x}.{info.st_mtime_ns:x}")
            except OSError:
                marks.append("0")
        return "-".join(marks)

    def state(self) -> RunState:
        """Return the state of the run."""
        # The order matters: the run's files are complete only once the lease is free.
        if self.directory.is_live():
            return RunState.RUNNING
        return RunState.DIED if self._whole() is None else RunState.FINISHED

    def result(self) -> RunResult:
        """Return the result of a run that is not live.

        Raises:
            RunDiedError: The run has no result.
        """
        result = self._whole()
        if result is None:
            raise RunDiedError(
                f"the process of run {self.run_id} died before its workers were done",
                key="run.died",
                hint=f"resume the run: `orchestrator resume {self.run_id}`",
            )
        return result

    def _whole(self) -> RunResult | None:
        """Return the result of a run that ended, or that died after its last worker's end."""
        self.read_all()
        if result := self.directory.run_result() or self._view.result:
            return result
        others = self._results_without_event()
        found = [worker.result or others[number] for number, worker in self.workers.items()]
        results = [result for result in found if result is not None]
        if len(results) < len(self.workers):
            return None
        started, ended = self._view.started_at, self._view.last
        return sum_up(
            results,
            run_id=self.run_id,
            base=self.record.base,
            engine=self.record.engine,
            duration=(ended - started).total_seconds() if ended else 0.0,
        )

    def _results_without_event(self) -> dict[int, WorkerResult | None]:
        """Return the results of workers that are in files, but in no event."""
        without = [number for number, worker in self.workers.items() if worker.result is None]
        return {number: self.directory.result(number) for number in without}


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
    candidates = tasks if wanted is None else [find_run(runs, wanted)]
    record = None
    for directory in reversed(candidates):
        record = read_outline(directory)
        numbers = {spec.worker_id for spec in record.workers} if record else set()
        if record is not None and (worker is None or worker in numbers):
            return RunHistory(directory, record)
    if wanted is not None and record is None:
        raise ConfigError(
            f"the record of run {candidates[0].run_id} is missing or unreadable",
            key="run.unreadable",
        )
    if worker is not None:
        what = "no run" if wanted is None else f"run {candidates[0].run_id}"
        has = "has a" if wanted is None else "has no"
        raise ConfigError(
            f"{what} {has} worker {worker}{_others(runs) if wanted is None else ''}",
            key="worker.unknown",
            hint="list the workers with `orchestrator ls --all`",
        )
    raise ConfigError(
        "there is no run in this repository" + _others(runs),
        key="run.none",
        hint='start a run: `orchestrator parallel "a task"`',
    )


def find_run(runs: Sequence[RunDirectory], wanted: str) -> RunDirectory:
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
                key="run.forbidden",
                hint=f"{user} can use this command on the run; `orchestrator ls` lists your own",
            )
        return found[0]
    if found:
        raise ConfigError(
            f"more than one run begins with `{wanted}`",
            key="run.ambiguous",
            hint=f"name one of the runs: {_names(found)}",
        )
    raise ConfigError(
        f"no such run: `{wanted}`",
        key="run.unknown",
        hint=f"runs of this repository: {_names(runs)}",
    )


def _others(runs: Sequence[RunDirectory]) -> str:
    """Return a remark on the runs of other users; empty without such runs."""
    users = sorted({user for run in runs if (user := run.other_user) is not None})
    return f", except runs of {', '.join(users)} that you may not read" if users else ""


def _names(runs: Sequence[RunDirectory]) -> str:
    shown = [run.run_id for run in runs[-_NAMED:]]
    more = ["..."] if len(runs) > _NAMED else []
    return ", ".join([*more, *shown]) or "none"
