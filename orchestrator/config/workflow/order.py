"""Decide which tasks of a workflow may start now, and which are skipped.

Of two tasks that need the same lock or capacity, the task that is earlier in the workflow starts
first: a task that waits for a lock, for capacity or to run alone is never overtaken by a task that
needs the same lock or capacity.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from orchestrator.base.events import WaitCause
from orchestrator.base.text.quantities import listing
from orchestrator.config.workflow.model import AtOneTime, Task, Workflow


class TaskOutcome(Enum):
    """Outcome of a task, as far as it matters to tasks that depend on it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The task did not run, because another task failed."""
    UNNEEDED = "unneeded"
    """The task did not run, because it handles failures and no task that it depends on failed."""


TaskOutcomes = Mapping[str, TaskOutcome]
"""Outcomes of the tasks that have ended, by task id."""
Shortage = Callable[[Task, Collection[Task]], str | None]
"""Function that returns why the machine has no room for a task and the running tasks; None if it
has room.
"""
_GOOD = frozenset({TaskOutcome.SUCCEEDED, TaskOutcome.UNNEEDED})


@dataclass(frozen=True)
class Skip:
    """The decision that a task will not run."""

    task: Task
    fate: TaskOutcome
    because: str
    """Why the task will not run, as a text for the user."""


class Wait(NamedTuple):
    """Why a task does not start yet."""

    cause: WaitCause
    reason: str


@dataclass(frozen=True)
class Choice:
    """The tasks that should start now, and why others do not."""

    started: list[Task]
    """The tasks that should start, in order."""
    held: dict[str, Wait]
    """Why tasks do not start even if a slot is free, by task id."""


def no_shortage(task: Task, running: Collection[Task]) -> str | None:  # noqa: ARG001
    """Return None, as if the machine had room for every task."""
    return None


class Order:
    """Decides which tasks of a workflow may start next, and which are skipped."""

    def __init__(self, workflow: Workflow, shortage: Shortage = no_shortage) -> None:
        self._workflow = workflow
        self._shortage = shortage

    def skips(self, waiting: Collection[str], fates: TaskOutcomes) -> Iterator[Skip]:
        """Yield the waiting tasks that will never run; skipping a task may cause further skips.

        `waiting` has task ids, and `fates` the outcomes of ended tasks by id.
        """
        known = dict(fates)
        stopper = next(
            (
                task
                for task in self._workflow.tasks
                if task.critical and known.get(task.id, TaskOutcome.SUCCEEDED) not in _GOOD
            ),
            None,
        )
        for task in self._workflow.tasks:
            if task.id not in waiting:
                continue
            skip = _skip(task, known)
            if stopper is not None:
                skip = skip or Skip(
                    task, TaskOutcome.SKIPPED, f"critical task `{stopper.id}` failed"
                )
            if skip is not None:
                known[task.id] = skip.fate
                yield skip

    def next(
        self, waiting: Collection[str], running: Collection[str], fates: TaskOutcomes, *, free: int
    ) -> Choice:
        """Return the tasks that should start now, at most `free` of them, and why others wait.

        `waiting` and `running` have task ids, and `fates` the outcomes of ended tasks by id.
        """
        by_id = self._workflow.by_id
        shares = self._workflow.complexity
        round_ = _Round([by_id[task_id] for task_id in running], self._shortage, shares)
        held: dict[str, Wait] = {}
        for task in self._workflow.tasks:
            if len(round_.started) >= free:
                break
            if task.id in waiting and self._wait_for_sources(task, fates) is None:
                wait = round_.consider(task)
                if wait is not None:
                    held[task.id] = wait
        return Choice(round_.started, held)

    def reasons_to_wait(self, waiting: Collection[str], fates: TaskOutcomes) -> dict[str, Wait]:
        """Return which waiting tasks cannot start before other tasks end, and why, by task id."""
        by_id = self._workflow.by_id
        waits = {name: self._wait_for_sources(by_id[name], fates) for name in waiting}
        return {name: wait for name, wait in waits.items() if wait is not None}

    def _wait_for_sources(self, task: Task, fates: TaskOutcomes) -> Wait | None:
        """Return why a task waits for the tasks whose commits it starts from; None if all ended.

        A task is skipped as soon as one of its dependencies fails, while others may still run. The
        dependencies of a skipped task replace the skipped task.
        """
        pending, seen, left = [*task.depends_on], set[str](), list[str]()
        for name in pending:
            if name in seen:
                continue
            seen.add(name)
            if name not in fates:
                left.append(name)
            elif fates[name] is TaskOutcome.SKIPPED:
                pending.extend(self._workflow.by_id[name].depends_on)
        if not left:
            return None
        return Wait("dependency", f"{listing(left, 'task')} must end first")


class _Round:
    """Collects the tasks that may start at one moment."""

    def __init__(self, running: list[Task], shortage: Shortage, shares: AtOneTime) -> None:
        self._running = running
        self._shortage = shortage
        self._shares = shares
        self._locks = {lock for task in running for lock in task.resources}
        self._weight = sum(shares.share(task.complexity) for task in running)
        self._first = next((task for task in running if not task.parallel), None)
        """The task because of which no further task may start in this round."""
        self.started: list[Task] = []

    def consider(self, task: Task) -> Wait | None:
        """Choose a task to start, or return why the task cannot start now."""
        if self._first is not None:
            how = "runs alone" if self._first in self._running else "starts first"
            return Wait("lock", f"task `{self._first.id}` {how}")
        locks, weight = {*task.resources}, self._shares.share(task.complexity)
        if not task.parallel and self._running:
            wait = Wait("lock", "this task runs alone: the running tasks must end first")
        elif taken := self._locks & locks:
            wait = Wait("lock", f"an earlier task needs {listing(sorted(taken), 'resource')}")
        elif weight and self._weight + weight > 1:
            wait = Wait("lock", "too many tasks with a complexity run at the same time")
        else:
            wait = None
        is_short = False
        if wait is None and self._running:
            problem = self._shortage(task, self._running)
            is_short = problem is not None
            wait = Wait("machine", problem) if problem is not None else None
        if wait is None:
            self.started.append(task)
            self._running.append(task)
        if not task.parallel or is_short:
            # A task that must run alone, or needs much of the machine, would starve if smaller
            # tasks kept starting before it.
            self._first = task
        self._locks |= locks
        self._weight += weight
        return wait


def _skip(task: Task, fates: TaskOutcomes) -> Skip | None:
    bad = [
        other for other in task.depends_on if fates.get(other, TaskOutcome.SUCCEEDED) not in _GOOD
    ]
    if task.when == "on_success" and bad:
        first, *more = (f"task `{other}` {fates[other].value}" for other in bad)
        because = f"{first} (and {len(more)} more)" if more else first
        return Skip(task, TaskOutcome.SKIPPED, because)
    is_settled = fates.keys() >= {*task.depends_on}
    if task.when == "on_failure" and is_settled and not bad:
        return Skip(task, TaskOutcome.UNNEEDED, "no task that this task depends on failed")
    return None
