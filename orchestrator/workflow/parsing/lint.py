"""What in a workflow may not be as its writer means it. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from orchestrator.text.path_patterns import is_wild, overlap, problem
from orchestrator.workflow.model import Task, Workflow

_MOST = 20


def advice(workflow: Workflow) -> tuple[str, ...]:
    """List what to look at, in words."""
    kinds = (_unmatchable, _overlaps, _lonely_locks, _slow)
    found = list(dict.fromkeys(line for kind in kinds for line in kind(workflow)))
    more = len(found) - _MOST
    return (*found[:_MOST], *([f"and {more} more of the kind"] if more > 0 else []))


def _overlaps(workflow: Workflow) -> Iterator[str]:
    """Name tasks that could run at one time and make changes in the same place."""
    before = _before(workflow)
    for first, second, shared in _sharing(workflow.tasks):
        one, other = workflow.tasks[first], workflow.tasks[second]
        if one.id not in before[other.id] and not _kept_apart(workflow, one, other):
            yield (
                f"`{_shown(one)}` and `{_shown(other)}` may run at one time and both change "
                f"`{shared}`: let one depend on the other, or give them a lock (`resources`)"
            )


def _sharing(tasks: Sequence[Task]) -> list[tuple[int, int, str]]:
    """Return pairs of tasks whose patterns may match the same file, and the narrower pattern."""
    by_pattern: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        for pattern in dict.fromkeys(_places(task)):
            by_pattern.setdefault(pattern, []).append(number)
    found: dict[tuple[int, int], str] = {}
    for one, other in _overlapping([*by_pattern]):
        for pair in product(by_pattern[one], by_pattern[other]):
            if pair[0] != pair[1]:
                found.setdefault((min(pair), max(pair)), max(one, other, key=_narrowness))
    return sorted((*pair, shared) for pair, shared in found.items())


def _places(task: Task) -> Iterator[str]:
    """Yield where a task makes changes, each place written in one way where it has no wildcards."""
    for pattern in (*(task.settings.paths or ()), *task.touches):
        yield pattern.rstrip("/") if is_wild(pattern) else _plain(pattern)


def _plain(pattern: str) -> str:
    return "/".join(part for part in pattern.split("/") if part not in ("", ".")) or "."


def _overlapping(patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of patterns that may match the same file, a pattern and itself included."""
    plain = {pattern for pattern in patterns if not is_wild(pattern)}
    for pattern in plain:
        yield from ((above, pattern) for above in _above(pattern) if above in plain)
    wild = [pattern for pattern in patterns if is_wild(pattern)]
    for number, pattern in enumerate(wild):
        for other in (*wild[number:], *plain):
            if overlap(pattern, other):
                yield pattern, other


def _narrowness(pattern: str) -> tuple[bool, int, bool, int]:
    return pattern != ".", pattern.count("/"), not is_wild(pattern), len(pattern)


def _above(path: str) -> Iterator[str]:
    """Yield a path, the directories that it is in, and `.`, which holds everything."""
    parts = path.split("/")
    yield from ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    if path != ".":
        yield "."


def _unmatchable(workflow: Workflow) -> Iterator[str]:
    """Name patterns that can match nothing."""
    for task in workflow.tasks:
        for key, patterns in (("paths", task.settings.paths or ()), ("touches", task.touches)):
            for pattern in patterns:
                why = problem(pattern)
                if why is not None:
                    yield f"`{pattern}` in `{key}` of `{_shown(task)}` matches nothing: {why}"


def _before(workflow: Workflow) -> dict[str, set[str]]:
    """Return all that comes before each task, however far."""
    found: dict[str, set[str]] = {}
    for task in workflow.tasks:
        found[task.id] = {*task.depends_on}.union(*(found[other] for other in task.depends_on))
    return found


def _kept_apart(workflow: Workflow, one: Task, other: Task) -> bool:
    alone = not (one.parallel and other.parallel)
    heavy = sum(workflow.complexity.share(task.complexity) for task in (one, other)) > 1
    batches = one.group is not None and one.group == other.group
    return alone or batches or heavy or bool({*one.resources} & {*other.resources})


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
