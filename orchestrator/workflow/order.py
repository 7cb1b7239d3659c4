"""Which tasks may start now, and which never will. Pure: it is asked, and remembers nothing.

Of two tasks that wait for the same thing, the one that stands earlier gets it first: who waits for
a lock, for its share of the machine or to be alone is not overtaken by those that want the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.workflow.model import AtOneTime, Task, Workflow


class TaskOutcome(Enum):
    """What became of a task, as far as others depend on it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It never ran, since another one failed."""
    UNNEEDED = "unneeded"
    """It never ran, since none failed that it was there for."""


TaskOutcomes = Mapping[str, TaskOutcome]
"""By the ids of the tasks that are over."""
Fits = Callable[[Task, Collection[Task]], bool]
"""Says whether the machine has room for a task beside those that run."""
_GOOD = frozenset({TaskOutcome.SUCCEEDED, TaskOutcome.UNNEEDED})


@dataclass(frozen=True)
class Skip:
    """A task that is not to run."""

    task: Task
    fate: TaskOutcome
    because: str
    """In words."""


def has_room(task: Task, running: Collection[Task]) -> bool:  # noqa: ARG001
    """Say that the machine always has room."""
    return True


class Order:
    """The rules of one workflow."""

    def __init__(self, workflow: Workflow, fits: Fits = has_room) -> None:
        self._workflow = workflow
        self._fits = fits

    def skips(self, waiting: Collection[str], fates: TaskOutcomes) -> Iterator[Skip]:
        """Yield those of the tasks that wait which are not to run, one after another's fate.

        Args:
            waiting: Ids of tasks that have not begun.
            fates: Of those that are over.
        """
        known = dict(fates)
        stopper = next((task for task in self._workflow.tasks if _stops(task, known)), None)
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
        """Return the tasks that are to start at this moment, the first one first.

        Args:
            waiting: Ids of tasks that want to start.
            running: Ids of those that run.
            fates: Of those that are over.
            free: How many slots there are for them.
        """
        by_id = self._workflow.by_id
        shares = self._workflow.complexity
        round_ = _Round([by_id[task_id] for task_id in running], self._fits, shares)
        for task in self._workflow.tasks:
            if len(round_.started) >= free or round_.closed:
                break
            if task.id in waiting and fates.keys() >= {*task.depends_on}:
                round_.consider(task)
        return round_.started


class _Round:
    """One look at who may start."""

    def __init__(self, running: list[Task], fits: Fits, shares: AtOneTime) -> None:
        self._running = running
        self._fits = fits
        self._shares = shares
        self._locks = {lock for task in running for lock in task.resources}
        self._weight = sum(shares.share(task.complexity) for task in running)
        self.closed = any(not task.parallel for task in running)
        """Whether nothing else may start."""
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
            # Whoever is to be alone, or needs much of the machine, would wait for ever behind
            # others that need little.
            self.closed = True
        self._locks |= locks
        self._weight += weight


def _stops(task: Task, fates: TaskOutcomes) -> bool:
    return task.critical is True and fates.get(task.id, TaskOutcome.SUCCEEDED) not in _GOOD


def _skip(task: Task, fates: TaskOutcomes) -> Skip | None:
    bad = [
        other for other in task.depends_on if fates.get(other, TaskOutcome.SUCCEEDED) not in _GOOD
    ]
    if task.when == "on_success" and bad:
        return Skip(task, TaskOutcome.SKIPPED, _in_words(bad, fates))
    is_settled = fates.keys() >= {*task.depends_on}
    if task.when == "on_failure" and is_settled and not bad:
        return Skip(task, TaskOutcome.UNNEEDED, "nothing that it depends on failed")
    return None


def _in_words(bad: Iterable[str], fates: TaskOutcomes) -> str:
    first, *more = (f"task `{other}` {fates[other].value}" for other in bad)
    return f"{first} (and {len(more)} more)" if more else first
