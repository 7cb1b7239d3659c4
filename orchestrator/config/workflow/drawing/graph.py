"""The graph that is drawn for a workflow: a node for each task, without redundant edges.

All tasks of one `foreach` are a single node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from orchestrator.config.workflow.model import Task, Workflow

TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Node:
    """A box in the drawing: one task, or all tasks of a `foreach`."""

    name: str
    tasks: tuple[Task, ...]
    depth: int
    """Number of the wave (step of the workflow) in which the node's tasks run; the first is 0."""
    after: tuple[int, ...]
    """Indices of the nodes that this node depends on directly."""


@dataclass(frozen=True)
class Shape:
    """The nodes to draw, each after the nodes that it depends on."""

    nodes: tuple[Node, ...]

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Return pairs of node indices; the second node of a pair depends on the first."""
        return tuple(
            (before, number) for number, node in enumerate(self.nodes) for before in node.after
        )


def shape_of(workflow: Workflow) -> Shape:
    """Return the graph to draw for a workflow."""
    members = _members(workflow)
    index = {task.id: number for number, tasks in enumerate(members) for task in tasks}
    nodes: list[Node] = []
    ancestors: list[int] = []
    for tasks in members:
        before = sorted({index[other] for other in tasks[0].depends_on})
        implied = _union(ancestors[number] for number in before)
        after = tuple(number for number in before if not implied >> number & 1)
        ancestors.append(_union(ancestors[n] | 1 << n for n in before))
        depth = 1 + max((nodes[number].depth for number in before), default=-1)
        first = tasks[0]
        name = first.id if len(tasks) == 1 else f"{first.group} {TIMES} {len(tasks)}"
        label = name if first.when == "on_success" else f"{name} ({first.when})"
        nodes.append(Node(label, tasks, depth, after))
    return Shape(tuple(nodes))


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)


def _members(workflow: Workflow) -> list[tuple[Task, ...]]:
    """Group the tasks of each `foreach` that can be one node; each other task is its own group."""
    groups: dict[str, list[Task]] = {}
    for task in workflow.tasks:
        if task.group is not None:
            groups.setdefault(task.group, []).append(task)
    whole = {name for name, tasks in groups.items() if _is_whole(tasks, workflow)}
    members: dict[tuple[bool, str], list[Task]] = {}
    for task in workflow.tasks:
        is_batch = task.group in whole
        members.setdefault((is_batch, str(task.group) if is_batch else task.id), []).append(task)
    return [tuple(tasks) for tasks in members.values()]


def _is_whole(batches: Sequence[Task], workflow: Workflow) -> bool:
    """Return whether all tasks of a `foreach` have equal dependencies and equal dependents."""
    ids = {task.id for task in batches}
    if any(set(task.depends_on) != set(batches[0].depends_on) for task in batches):
        return False
    shared = ({*task.depends_on} & ids for task in workflow.tasks)
    return all(batches in (set(), ids) for batches in shared)
