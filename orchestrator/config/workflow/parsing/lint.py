"""Warn about likely mistakes in a workflow that is valid."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from orchestrator.base.text.path_patterns import is_wild, overlap, problem
from orchestrator.config.workflow.model import Task, Workflow

_MOST = 20


def advice(workflow: Workflow) -> tuple[str, ...]:
    """Return warnings about likely mistakes in a workflow."""
    warnings = list(dict.fromkeys(_warnings(workflow)))
    more = len(warnings) - _MOST
    return (*warnings[:_MOST], *([f"and {more} more warnings"] if more > 0 else []))


def _warnings(workflow: Workflow) -> Iterator[str]:
    for task in workflow.tasks:
        for key, patterns in (("paths", task.settings.paths or ()), ("touches", task.touches)):
            for pattern in patterns:
                if (why := problem(pattern)) is not None:
                    yield f"`{pattern}` in `{key}` of `{_name_of(task)}` matches nothing: {why}"
    yield from _overlaps(workflow)
    users = Counter(lock for task in workflow.tasks for lock in {*task.resources})
    for task in workflow.tasks:
        for lock in task.resources:
            if users[lock] == 1 and task.group is None:
                yield f"the lock `{lock}` is used only by `{task.id}`, so it has no effect"
    for task in workflow.tasks:
        limit = task.settings.timeout
        if workflow.max_latency and limit is not None and not 0 < limit <= workflow.max_latency:
            yield (
                f"`{_name_of(task)}` may take longer (`timeout`) than the "
                f"{workflow.max_latency:g} seconds of `policy.constraints.maxLatency`"
            )


def _overlaps(workflow: Workflow) -> Iterator[str]:
    """Yield warnings about tasks that may run at the same time and change the same files."""
    # The ids of all direct and indirect dependencies of each task.
    before: dict[str, set[str]] = {}
    for task in workflow.tasks:
        before[task.id] = {*task.depends_on}.union(*(before[other] for other in task.depends_on))
    for first, second, shared in _pairs_sharing_files(workflow.tasks):
        task, other = workflow.tasks[first], workflow.tasks[second]
        if task.id not in before[other.id] and not _never_concurrent(workflow, task, other):
            yield (
                f"`{_name_of(task)}` and `{_name_of(other)}` may run at the same time and both "
                f"change `{shared}`: let one depend on the other, or give both a common lock "
                "(`resources`)"
            )


def _pairs_sharing_files(tasks: Sequence[Task]) -> list[tuple[int, int, str]]:
    """Return pairs of tasks that may change the same file, with the more specific pattern."""
    by_pattern: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        # Patterns that can match a file; plain paths are normalised.
        usable = [
            pattern
            for pattern in (*(task.settings.paths or ()), *task.touches)
            if problem(pattern) is None
        ]
        for pattern in dict.fromkeys(map(_normalise, usable)):
            by_pattern.setdefault(pattern, []).append(number)
    shared_by: dict[tuple[int, int], str] = {}
    for pattern, other in _overlapping([*by_pattern]):
        for pair in product(by_pattern[pattern], by_pattern[other]):
            if pair[0] != pair[1]:
                shared_by.setdefault((min(pair), max(pair)), max(pattern, other, key=_narrowness))
    return sorted((*pair, shared) for pair, shared in shared_by.items())


def _normalise(pattern: str) -> str:
    if is_wild(pattern):
        return pattern.rstrip("/")
    return "/".join(part for part in pattern.split("/") if part not in ("", ".")) or "."


def _overlapping(patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of patterns that may match the same file; a pattern also pairs with itself."""
    plain = {pattern for pattern in patterns if not is_wild(pattern)}
    for pattern in plain:
        # The path itself, all directories above it, and `.`.
        parts = pattern.split("/")
        places = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        yield from ((above, pattern) for above in dict.fromkeys([*places, "."]) if above in plain)
    wild = [pattern for pattern in patterns if is_wild(pattern)]
    for number, pattern in enumerate(wild):
        for other in (*wild[number:], *plain):
            if overlap(pattern, other):
                yield pattern, other


def _narrowness(pattern: str) -> tuple[bool, int, bool, int]:
    return pattern != ".", pattern.count("/"), not is_wild(pattern), len(pattern)


def _never_concurrent(workflow: Workflow, task: Task, other: Task) -> bool:
    alone = not (task.parallel and other.parallel)
    heavy = sum(workflow.complexity.share(each.complexity) for each in (task, other)) > 1
    batches = task.group is not None and task.group == other.group
    return alone or batches or heavy or bool({*task.resources} & {*other.resources})


def _name_of(task: Task) -> str:
    return task.group or task.id
