"""Decide which tasks of a workflow may start now, and which are skipped.

Of two tasks that need the same lock or capacity, the task that is earlier in the workflow starts
first: a task that waits for a lock, for capacity or to run alone is never overtaken by a task that
needs the same lock or capacity.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.workflow.model import AtOneTime, Task, Workflow


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
Fits = Callable[[Task, Collection[Task]], bool]
"""Function that returns whether the machine has room for a task and the running tasks."""
_GOOD = frozenset({TaskOutcome.SUCCEEDED, TaskOutcome.UNNEEDED})


@dataclass(frozen=True)
class Skip:
    """The decision that a task will not run."""

    task: Task
    fate: TaskOutcome
    because: str
    """Why the task will not run, as a text for the user."""


def has_room(task: Task, running: Collection[Task]) -> bool:  # noqa: ARG001
    """Return True, as if the machine had room for every task."""
    return True


class Order:
    """Decides which tasks of a workflow may start next, and which are skipped."""

    def __init__(self, workflow: Workflow, fits: Fits = has_room) -> None:
        self._workflow = workflow
        self._fits = fits

    def skips(self, waiting: Collection[str], fates: TaskOutcomes) -> Iterator[Skip]:
        """Yield the waiting tasks that will never run; skipping a task may cause further skips.

        `waiting` has task ids, and `fates` the outcomes of ended tasks by id.
        """
        known = dict(fates)
        stopper = next((task for task in self._workflow.tasks if _has_stopped(task, known)), None)
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
    ) -> list[Task]:
        """Return the tasks that should start now, in order, at most `free` of them.

        `waiting` and `running` have task ids, and `fates` the outcomes of ended tasks by id.
        """
        by_id = self._workflow.by_id
        shares = self._workflow.complexity
        round_ = _Round([by_id[task_id] for task_id in running], self._fits, shares)
        for task in self._workflow.tasks:
            if len(round_.started) >= free or round_.closed:
                break
            if task.id in waiting and self._have_sources_ended(task, fates):
                round_.consider(task)
        return round_.started

    def _have_sources_ended(self, task: Task, fates: TaskOutcomes) -> bool:
        """Return whether all tasks have ended whose commits a task starts from.

        A task is skipped as soon as one of its dependencies fails, while others may still run. The
        dependencies of a skipped task replace the skipped task.
        """
        pending, seen = [*task.depends_on], set[str]()
        while pending:
            name = pending.pop()
            if name not in fates:
                return False
            if name not in seen and fates[name] is TaskOutcome.SKIPPED:
                pending.extend(self._workflow.by_id[name].depends_on)
            seen.add(name)
        return True


class _Round:
    """Collects the tasks that may start at one moment."""

    def __init__(self, running: list[Task], fits: Fits, shares: AtOneTime) -> None:
        self._running = running
        self._fits = fits
        self._shares = shares
        self._locks = {lock for task in running for lock in task.resources}
        self._weight = sum(shares.share(task.complexity) for task in running)
        self.closed = any(not task.parallel for task in running)
        """Whether no further task may start in this round."""
        self.started: list[Task] = []

    def consider(self, task: Task) -> None:
        locks, weight = {*task.resources}, self._shares.share(task.complexity)
        may = task.parallel or not self._running
        may = may and not self._locks & locks
        may = may and (not weight or self._weight + weight <= 1)
        if may and (not self._running or self._fits(task, self._running)):
            self.started.append(task)
            self._running.append(task)
            self.closed = not task.parallel
        elif not task.parallel or (may and self._running):
            # A task that must run alone, or needs much of the machine, would starve if smaller
            # tasks kept starting before it.
            self.closed = True
        self._locks |= locks
        self._weight += weight


def _has_stopped(task: Task, fates: TaskOutcomes) -> bool:
    return task.critical is True and fates.get(task.id, TaskOutcome.SUCCEEDED) not in _GOOD


def _skip(task: Task, fates: TaskOutcomes) -> Skip | None:
    bad = [
        other for other in task.depends_on if fates.get(other, TaskOutcome.SUCCEEDED) not in _GOOD
    ]
    if task.when == "on_success" and bad:
        return Skip(task, TaskOutcome.SKIPPED, _in_words(bad, fates))
    is_settled = fates.keys() >= {*task.depends_on}
    if task.when == "on_failure" and is_settled and not bad:
        return Skip(task, TaskOutcome.UNNEEDED, "no task that this task depends on failed")
    return None


def _in_words(bad: Iterable[str], fates: TaskOutcomes) -> str:
    first, *more = (f"task `{other}` {fates[other].value}" for other in bad)
    return f"{first} (and {len(more)} more)" if more else first
