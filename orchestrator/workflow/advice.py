"""What in a workflow may not be as its writer means it. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from orchestrator.workflow.model import Task, Workflow

_MOST = 20


def advice(workflow: Workflow) -> tuple[str, ...]:
    """List what to look at, in words."""
    found = list(dict.fromkeys([*_overlaps(workflow), *_lonely_locks(workflow), *_slow(workflow)]))
    more = len(found) - _MOST
    return (*found[:_MOST], *([f"and {more} more of the kind"] if more > 0 else []))


def _overlaps(workflow: Workflow) -> Iterator[str]:
    """Name tasks that could run at one time and make changes in the same place."""
    scoped = [task for task in workflow.tasks if task.settings.paths]
    before = _before(workflow)
    for number, task in enumerate(scoped):
        for other in scoped[:number]:
            if other.id in before[task.id] or _kept_apart(task, other):
                continue
            shared = _shared(other.settings.paths or (), task.settings.paths or ())
            if shared:
                yield (
                    f"`{_shown(other)}` and `{_shown(task)}` may run at one time and both change "
                    f"`{shared}`: let one depend on the other, or give them a lock (`resources`)"
                )


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


def _shared(ones: Sequence[str], others: Sequence[str]) -> str | None:
    """Give a pattern of which the other side has a part, or that is part of one there."""
    for one in (pattern.rstrip("/") for pattern in ones):
        for other in (pattern.rstrip("/") for pattern in others):
            if _covers(one, other):
                return other
            if _covers(other, one):
                return one
    return None


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
