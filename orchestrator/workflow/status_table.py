"""Format a table with the states of all tasks, for agents and users."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property

from orchestrator.events import (
    Event,
    RunStarted,
    WorkerDone,
    WorkerPreparing,
    WorkerRetrying,
    WorkerStarted,
)
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.text.sanitize import one_line
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.model import Workflow

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


@dataclass(frozen=True)
class _Row:
    spec: WorkerSpec
    state: State
    at: datetime

    @cached_property
    def line(self) -> str:
        """Return the row as Markdown; cached, because each change of the table writes all rows."""
        name = self.spec.name or f"W{self.spec.worker_id}"
        at = f"{self.at.astimezone(UTC):%H:%M:%S} UTC"
        cells = (name, self.spec.task.strip(), self.state.value, at)
        return f"| {' | '.join(_cell(cell) for cell in cells)} |\n"


class StatusBoard:
    """Tracks the states of all tasks from a run's events, and formats the table."""

    def __init__(self, workflow: Workflow | None = None) -> None:
        """Create an empty table.

        Args:
            workflow: The workflow with the dependencies. Default: no dependencies.
        """
        tasks = workflow.tasks if workflow else ()
        self._after: Mapping[str, tuple[str, ...]] = {task.id: task.depends_on for task in tasks}
        self._rows: dict[int, _Row] = {}
        self._over: set[str] = set()

    def note(self, event: Event) -> bool:
        """Update the table for an event; return whether the table has changed."""
        before = dict(self._rows)
        match event:
            case RunStarted():
                self._begin(event)
            case WorkerPreparing(worker_id=number) | WorkerStarted(worker_id=number):
                self._set(number, State.IN_PROGRESS, event.at)
            case WorkerRetrying(worker_id=number):
                self._set(number, State.WAITING, event.at)
            case WorkerDone(result=result):
                self._set(result.worker_id, _end_of(result), event.at)
                self._release(result.name, event.at)
            case _:
                return False
        return self._rows != before

    def _begin(self, event: RunStarted) -> None:
        for spec in event.workers:
            # A resumed run emits RunStarted a second time.
            state = State.BLOCKED if self._waits(spec) else State.WAITING
            self._rows.setdefault(spec.worker_id, _Row(spec, state, event.at))

    def _waits(self, spec: WorkerSpec) -> bool:
        return not self._over.issuperset(self._after.get(spec.name or "", ()))

    def _set(self, number: int, state: State, at: datetime) -> None:
        row = self._rows.get(number)
        if row is not None and row.state is not state:
            self._rows[number] = _Row(row.spec, state, at)

    def _release(self, name: str | None, at: datetime) -> None:
        self._over |= {name} if name else set()
        for number, row in self._rows.items():
            if row.state is State.BLOCKED and row.spec.name not in self._over:
                self._set(number, State.BLOCKED if self._waits(row.spec) else State.WAITING, at)

    def text(self) -> str:
        """Return the table as Markdown."""
        return _HEADING + "".join(self._rows[number].line for number in sorted(self._rows))


def _cell(text: str) -> str:
    return one_line(text, limit=_LONGEST).strip().translate(_SPECIAL)


def _end_of(result: WorkerResult) -> State:
    if result.started_at is None and (result.reason is None or result.reason in _NEVER_RAN):
        return State.SKIPPED
    if result.reason is Reason.CONFLICT:
        return State.BLOCKED
    return State.COMPLETE if result.status is Status.SUCCESS else State.FAILED
