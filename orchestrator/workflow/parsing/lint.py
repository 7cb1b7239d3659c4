"""Warn about likely mistakes in a workflow that is valid."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from orchestrator.text.path_patterns import is_wild, overlap, problem
from orchestrator.workflow.model import Task, Workflow

_MOST = 20


def advice(workflow: Workflow) -> tuple[str, ...]:
    """Return warnings about likely mistakes in a workflow."""
    kinds = (_unmatchable, _overlaps, _unshared_locks, _slow)
    warnings = list(dict.fromkeys(line for kind in kinds for line in kind(workflow)))
    more = len(warnings) - _MOST
    return (*warnings[:_MOST], *([f"and {more} more warnings"] if more > 0 else []))


def _overlaps(workflow: Workflow) -> Iterator[str]:
    """Yield warnings about tasks that may run at the same time and change the same files."""
    before = _before(workflow)
    for first, second, shared in _pairs_sharing_files(workflow.tasks):
        one, other = workflow.tasks[first], workflow.tasks[second]
        if one.id not in before[other.id] and not _never_concurrent(workflow, one, other):
            yield (
                f"`{_shown(one)}` and `{_shown(other)}` may run at the same time and both change "
                f"`{shared}`: let one depend on the other, or give both a common lock (`resources`)"
            )


def _pairs_sharing_files(tasks: Sequence[Task]) -> list[tuple[int, int, str]]:
    """Return pairs of tasks that may change the same file, with the more specific pattern."""
    by_pattern: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        for pattern in dict.fromkeys(_patterns_of(task)):
            by_pattern.setdefault(pattern, []).append(number)
    shared_by: dict[tuple[int, int], str] = {}
    for one, other in _overlapping([*by_pattern]):
        for pair in product(by_pattern[one], by_pattern[other]):
            if pair[0] != pair[1]:
                shared_by.setdefault((min(pair), max(pair)), max(one, other, key=_narrowness))
    return sorted((*pair, shared) for pair, shared in shared_by.items())


def _patterns_of(task: Task) -> Iterator[str]:
    """Yield a task's path patterns that can match a file; plain paths are normalised."""
    for pattern in (*(task.settings.paths or ()), *task.touches):
        if problem(pattern) is None:
            yield pattern.rstrip("/") if is_wild(pattern) else _plain(pattern)


def _plain(pattern: str) -> str:
    return "/".join(part for part in pattern.split("/") if part not in ("", ".")) or "."


def _overlapping(patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of patterns that may match the same file; a pattern also pairs with itself."""
    plain = {pattern for pattern in patterns if not is_wild(pattern)}
    for pattern in plain:
        yield from ((above, pattern) for above in _with_parents(pattern) if above in plain)
    wild = [pattern for pattern in patterns if is_wild(pattern)]
    for number, pattern in enumerate(wild):
        for other in (*wild[number:], *plain):
            if overlap(pattern, other):
                yield pattern, other


def _narrowness(pattern: str) -> tuple[bool, int, bool, int]:
    return pattern != ".", pattern.count("/"), not is_wild(pattern), len(pattern)


def _with_parents(path: str) -> Iterator[str]:
    """Yield a path, all directories above it, and `.`."""
    parts = path.split("/")
    yield from ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    if path != ".":
        yield "."


def _unmatchable(workflow: Workflow) -> Iterator[str]:
    """Yield warnings about path patterns that cannot match any file."""
    for task in workflow.tasks:
        for key, patterns in (("paths", task.settings.paths or ()), ("touches", task.touches)):
            for pattern in patterns:
                why = problem(pattern)
                if why is not None:
                    yield f"`{pattern}` in `{key}` of `{_shown(task)}` matches nothing: {why}"


def _before(workflow: Workflow) -> dict[str, set[str]]:
    """Return the ids of all direct and indirect dependencies of each task."""
    before: dict[str, set[str]] = {}
    for task in workflow.tasks:
        before[task.id] = {*task.depends_on}.union(*(before[other] for other in task.depends_on))
    return before


def _never_concurrent(workflow: Workflow, one: Task, other: Task) -> bool:
    alone = not (one.parallel and other.parallel)
    heavy = sum(workflow.complexity.share(task.complexity) for task in (one, other)) > 1
    batches = one.group is not None and one.group == other.group
    return alone or batches or heavy or bool({*one.resources} & {*other.resources})


def _unshared_locks(workflow: Workflow) -> Iterator[str]:
    named = Counter(lock for task in workflow.tasks for lock in {*task.resources})
    for task in workflow.tasks:
        for lock in task.resources:
            if named[lock] == 1 and task.group is None:
                yield f"the lock `{lock}` is used only by `{task.id}`, so it has no effect"


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
