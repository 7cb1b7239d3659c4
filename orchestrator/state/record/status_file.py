"""Maintain the file `status.md` of a run: a table of all tasks and their states, for agents too."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC
from enum import StrEnum

from orchestrator.base.events import (
    Event,
    RunStarted,
    WorkerDone,
    WorkerPreparing,
    WorkerRetrying,
    WorkerStarted,
)
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.results import Reason, Status
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.workflow.model import Workflow
from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.states import WorkerState
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.state.run_directory import STATUS, RunDirectory
from orchestrator.state.run_record import read_record

_HEADING = "| Agent | Task | Status | Last Update |\n|-------|------|--------|-------------|\n"
_LONGEST = 100
"""Maximum number of characters of a task's text in the table."""
_SPECIAL = {ord(char): f"\\{char}" for char in "\\`*_[]<>|~&"}
_NEVER_RAN = frozenset({Reason.DEPENDENCY, Reason.CANCELLED})


class State(StrEnum):
    """State of a task in the status table."""

    BLOCKED = "Blocked"
    """The task waits for other tasks; or it ended because its dependencies cannot be merged."""
    WAITING = "Waiting"
    """The task waits for a free worker slot, a lock, or its next attempt."""
    IN_PROGRESS = "In progress"
    COMPLETE = "Complete"
    FAILED = "Failed"
    SKIPPED = "Skipped"


class StatusTable:
    """Formats the table, and notices when an event changes it."""

    def __init__(self, workflow: Workflow | None = None) -> None:
        """Create an empty table.

        Args:
            workflow: The workflow with the dependencies. Default: no dependencies.
        """
        tasks = workflow.tasks if workflow else ()
        self._after: Mapping[str, tuple[str, ...]] = {task.id: task.depends_on for task in tasks}
        self._run = RunView()
        self._ended: set[str | None] = set()
        self._states: dict[int, State] = {}
        self._lines: dict[int, str] = {}

    def apply(self, event: Event) -> bool:
        """Update the table for an event; return whether the table has changed."""
        self._run.apply(event)
        is_changed = False
        for worker in self._workers_of(event):
            is_free = self._ended.issuperset(self._after.get(worker.name or "", ()))
            state = _state(worker, is_free=is_free)
            if self._states.get(worker.worker_id) is not state:
                # Each change of the table writes all rows, but renders only those that changed.
                self._states[worker.worker_id] = state
                at = f"{event.at.astimezone(UTC):%H:%M:%S} UTC"
                texts = (worker.name or f"W{worker.worker_id}", worker.spec.task.strip(), state, at)
                self._lines[worker.worker_id] = f"| {' | '.join(map(_cell, texts))} |\n"
                is_changed = True
        return is_changed

    def _workers_of(self, event: Event) -> list[WorkerView]:
        """Return the workers whose rows may change with an event."""
        match event:
            case RunStarted():
                return [*self._run.workers]
            case WorkerDone(result=result):
                self._ended.add(result.name)
                blocked = {n for n, state in self._states.items() if state is State.BLOCKED}
                numbers = [result.worker_id, *sorted(blocked - {result.worker_id})]
            case WorkerPreparing() | WorkerStarted() | WorkerRetrying():
                numbers = [event.worker_id]
            case _:
                return []
        return [self._run.by_number[number] for number in numbers if number in self._run.by_number]

    def text(self) -> str:
        """Return the table as Markdown."""
        return _HEADING + "".join(self._lines[number] for number in sorted(self._lines))


def _state(worker: WorkerView, *, is_free: bool) -> State:
    """Return the state of a worker's task; `is_free` if its dependencies have ended."""
    result = worker.result
    if result is not None:
        if result.started_at is None and (result.reason is None or result.reason in _NEVER_RAN):
            return State.SKIPPED
        if result.reason is Reason.CONFLICT:
            return State.BLOCKED
        return State.COMPLETE if result.status is Status.SUCCESS else State.FAILED
    if worker.state is WorkerState.QUEUED:
        return State.WAITING if is_free else State.BLOCKED
    return State.WAITING if worker.state is WorkerState.RETRYING else State.IN_PROGRESS


def _cell(text: str) -> str:
    return one_line(text, limit=_LONGEST).strip().translate(_SPECIAL)


class StatusFile:
    """Writes the table to `status.md` when an event changes it. Thread-safe."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._table = StatusTable()
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Update the file for an event."""
        with self._lock:
            if isinstance(event, RunStarted):
                record = read_record(self._directory)
                self._table = StatusTable(record.workflow if record else None)
            if self._table.apply(event):
                # On a full disk, or if the run was removed, only the table is lost; the workers
                # continue. They do not wait for the disk, because the table has nothing that the
                # run's other files do not have.
                with suppress(OSError):
                    text = self._table.text()
                    write_atomically(self._directory.path / STATUS, text, durable=False)
