"""What in a workflow may not be as its writer means it. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import product

from orchestrator.workflow.model import Task, Workflow

_MOST = 20


def advice(workflow: Workflow) -> tuple[str, ...]:
    """List what to look at, in words."""
    found = list(dict.fromkeys([*_overlaps(workflow), *_lonely_locks(workflow), *_slow(workflow)]))
    more = len(found) - _MOST
    return (*found[:_MOST], *([f"and {more} more of the kind"] if more > 0 else []))


def _overlaps(workflow: Workflow) -> Iterator[str]:
    """Name tasks that could run at one time and make changes in the same place."""
    before = _before(workflow)
    for first, second, shared in _sharing(workflow.tasks):
        one, other = workflow.tasks[first], workflow.tasks[second]
        if one.id not in before[other.id] and not _kept_apart(one, other):
            yield (
                f"`{_shown(one)}` and `{_shown(other)}` may run at one time and both change "
                f"`{shared}`: let one depend on the other, or give them a lock (`resources`)"
            )


def _sharing(tasks: Sequence[Task]) -> list[tuple[int, int, str]]:
    """Give pairs of tasks of which one's pattern is part of the other's, and that part."""
    by_pattern: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        for pattern in dict.fromkeys(one.rstrip("/") for one in task.settings.paths or ()):
            by_pattern.setdefault(pattern, []).append(number)
    wild = [pattern for pattern in by_pattern if {*pattern} & {*"*?["}]
    found: dict[tuple[int, int], str] = {}
    for narrow, numbers in by_pattern.items():
        for wide in (*_above(narrow), *(one for one in wild if _covers(one, narrow))):
            for pair in product(by_pattern.get(wide, ()), numbers):
                if pair[0] != pair[1]:
                    found.setdefault((min(pair), max(pair)), narrow)
    return sorted((*pair, shared) for pair, shared in found.items())


def _above(path: str) -> Iterator[str]:
    """Give a path and the directories that it is in."""
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _before(workflow: Workflow) -> dict[str, set[str]]:
    """Give all that comes before each task, however far."""
    found: dict[str, set[str]] = {}
    for task in workflow.tasks:
        found[task.id] = {*task.depends_on}.union(*(found[other] for other in task.depends_on))
    return found


def _kept_apart(one: Task, other: Task) -> bool:
    alone = not (one.parallel and other.parallel)
    heavy = "high" in (one.complexity, other.complexity) and one.complexity and other.complexity
    batches = one.group is not None and one.group == other.group
    return alone or batches or bool(heavy) or bool({*one.resources} & {*other.resources})


def _covers(wide: str, narrow: str) -> bool:
    return fnmatchcase(narrow, wide) or fnmatchcase(narrow, f"{wide}/*")


def _lonely_locks(workflow: Workflow) -> Iterator[str]:
    named = Counter(lock for task in workflow.tasks for lock in {*task.resources})
    for task in workflow.tasks:
        for lock in task.resources:
            if named[lock] == 1 and task.group is None:
                yield f"the lock `{lock}` is named by `{task.id}` alone, so it keeps nothing out"


def _slow(workflow: Workflow) -> Iterator[str]:
    for task in workflow.tasks:
        limit = task.settings.timeout
        if workflow.max_latency and limit is not None and not 0 < limit <= workflow.max_latency:
            yield (
                f"`{_shown(task)}` may take longer (`timeout`) than the "
                f"{workflow.max_latency:g} seconds of `policy.constraints.maxLatency`"
            )


def _shown(task: Task) -> str:
    return task.group or task.id
