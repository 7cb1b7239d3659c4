"""Read a workflow file in any supported format."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from orchestrator.base.text.path_patterns import is_wild, overlap, problem
from orchestrator.config.fields import place
from orchestrator.config.loading.document import read_document
from orchestrator.config.node import DocumentError, Node
from orchestrator.config.workflow.model import MOST_TASKS, Task, Workflow
from orchestrator.config.workflow.parsing.diagnostics import Mistakes
from orchestrator.config.workflow.parsing.dialects import as_manifest
from orchestrator.config.workflow.parsing.foreach import Expand, leave_open
from orchestrator.config.workflow.parsing.manifest import Manifest
from orchestrator.config.workflow.parsing.squad import is_squad, read_squad
from orchestrator.config.workflow.parsing.task_builder import Maker
from orchestrator.config.workflow.parsing.task_nodes import (
    after_a_stage,
    edges_of,
    in_order,
    tasks_of,
)
from orchestrator.config.workflow.parsing.variables import find_unquoted_items, variables_of


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A parsed workflow file, with messages about it."""

    workflow: Workflow
    notices: tuple[str, ...] = ()
    """Messages for the user about how the file was understood."""
    warnings: tuple[str, ...] = ()
    """Warnings about likely mistakes in the workflow."""
    file: Path = Path()
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each task, the place `FILE:LINE` of each of its keys."""


def read_workflow(
    path: Path,
    *,
    variables: Mapping[str, str] | None = None,
    expand: Expand | None = None,
) -> Reading:
    """Read and check a workflow file in YAML, JSON or the format of SQUAD.md.

    Args:
        path: The file.
        variables: Values of `{{NAME}}`, which override those under `vars:`.
        expand: Function that returns the items of a `foreach`. By default, items that are not
            listed in the file stay unknown, and one task takes their place.

    Raises:
        ConfigError: The file is invalid. The message lists all problems with their lines.
    """
    mistakes = Mistakes(path)
    notices: list[str] = []
    root = _root(path, mistakes, notices)
    _check_size(root, mistakes)
    mistakes.raise_any()
    manifest = mistakes.validate(Manifest, root, "")
    written = tasks_of(root, mistakes)
    edges = edges_of(written, mistakes)
    values = variables_of(root, variables or {}, written, mistakes)
    mistakes.raise_any()
    if manifest is None:
        raise AssertionError("an invalid manifest must have reported a mistake")
    members = root.value if isinstance(root.value, dict) else {}
    defaults = members.get("defaults")
    maker = Maker(
        manifest=manifest,
        defaults=(
            defaults.value if defaults is not None and isinstance(defaults.value, dict) else {}
        ),
        values=values,
        expand=expand or leave_open,
        mistakes=mistakes,
        edges=edges,
        after_stage=after_a_stage(written),
        notices=notices,
    )
    by_id = {task.id: task for task in written}
    tasks = maker.tasks([by_id[task_id] for task_id in in_order(edges)])
    mistakes.raise_any()
    warnings = (*find_unquoted_items(written, maker.defaults),)
    places = {
        name: {key: place(path, node) for key, node in keys.items()}
        for name, keys in maker.keys.items()
    }
    return replace(_reading(path, manifest, tasks, maker.notices, warnings), places=places)


def _root(path: Path, mistakes: Mistakes, notices: list[str]) -> Node:
    try:
        root = read_squad(path) if is_squad(path) else read_document(path)
    except DocumentError as error:
        mistakes.add_line(str(error))
        return Node(None, None)
    for node in _all(root):
        if isinstance(node.value, str) and any(
            letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in node.value
        ):
            mistakes.add(
                node, "a text contains NUL or a lone surrogate, which is not valid Unicode"
            )
    return as_manifest(root, mistakes, notices)


def _check_size(root: Node, mistakes: Mistakes) -> None:
    """Refuse more tasks, stages or items than a workflow can have, before anything is built."""
    members = root.value if isinstance(root.value, dict) else {}
    stages = _items(members.get("stages"))
    inside = [_items(_member(stage, "tasks")) for stage in stages]
    tasks = [*_items(members.get("tasks")), *(task for each in inside for task in each)]
    for count, what in ((len(tasks), "tasks"), (len(stages), "stages")):
        if count > MOST_TASKS:
            mistakes.add(None, f"there are {count} {what}, more than {MOST_TASKS}")
    for task in tasks:
        items = _member(_member(task, "foreach"), "items")
        batch = _member(task, "batch")
        size = batch.value if batch is not None and isinstance(batch.value, int) else 1
        if (count := len(_items(items))) > MOST_TASKS * max(1, size):
            mistakes.add(items, f"there are {count} items, which make more than {MOST_TASKS} tasks")


def _member(node: Node | None, key: str) -> Node | None:
    return node.value.get(key) if node is not None and isinstance(node.value, dict) else None


def _items(node: Node | None) -> Sequence[Node]:
    return node.value if node is not None and isinstance(node.value, list) else ()


def _all(node: Node) -> Iterator[Node]:
    yield node
    members = node.value
    if isinstance(members, dict):
        members = [*members.values()]
    for member in members if isinstance(members, list) else ():
        yield from _all(member)


def _reading(
    path: Path,
    manifest: Manifest,
    tasks: Sequence[Task],
    notices: Sequence[str],
    warnings: Sequence[str],
) -> Reading:
    limits = manifest.policy.constraints
    workflow = Workflow(
        name=manifest.name or path.name.partition(".")[0][:200] or path.name[:200],
        tasks=tuple(tasks),
        max_latency=None if limits.max_latency is None else limits.max_latency / 1000,
        complexity=manifest.complexity,
        network="none" if limits.privacy == "private" else None,
    )
    return Reading(
        workflow=workflow,
        file=path,
        notices=tuple(notices),
        warnings=(*dict.fromkeys(warnings), *advice(workflow)),
    )


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
