"""Read a workflow file in any supported format."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.config.fields import place
from orchestrator.config.loading.document import read_document
from orchestrator.config.node import DocumentError, Node
from orchestrator.config.workflow.model import MOST_TASKS, Task, Workflow
from orchestrator.config.workflow.parsing.diagnostics import Mistakes
from orchestrator.config.workflow.parsing.dialects import as_manifest
from orchestrator.config.workflow.parsing.foreach import Expand, leave_open
from orchestrator.config.workflow.parsing.lint import advice
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
