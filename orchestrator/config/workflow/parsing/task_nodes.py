"""Find the tasks in a workflow file, with their ids and dependencies.

This works on the parsed file before it is validated, so that no other mistake hides the mistakes
that are found here.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import pairwise

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.node import Node
from orchestrator.config.workflow.parsing.diagnostics import Mistakes
from orchestrator.config.workflow.parsing.manifest import is_id

_NAMES = ("id", "name")
_REDUCED = ("reduce", "inputs")
_BEFORE = ("depends_on", "dependencies", *_REDUCED)
_Key = str | int


@dataclass(frozen=True, kw_only=True)
class Written:
    """A task as it is written in the file."""

    place: str
    """How messages name the task before it has an id: `tasks[3]`."""
    node: Node
    id: str
    stage: int | None
    """Number of the stage that the task belongs to; None if it has no stage."""

    @property
    def members(self) -> Mapping[str, Node]:
        """Return the task's keys and values."""
        return self.node.value if isinstance(self.node.value, dict) else {}


def tasks_of(root: Node, mistakes: Mistakes) -> list[Written]:
    """Return the tasks in a file, each with its own id."""
    placed = list(_nodes_with_places(root))
    stages = _Stages(root, [node for _, node, _ in placed], mistakes)
    names = _ids(placed, mistakes)
    return [
        Written(place=place, node=node, id=name, stage=stages.number(place, node, within))
        for (place, node, within), name in zip(placed, names, strict=True)
    ]


_Placed = tuple[str, Node, int | None]


def _nodes_with_places(root: Node) -> Iterator[_Placed]:
    for key in _members(root):
        for number, item in enumerate(_items(root, key)):
            if key == "tasks":
                yield f"tasks[{number + 1}]", item, None
            elif key == "stages":
                for place, task in enumerate(_items(item, "tasks"), start=1):
                    yield f"stages[{number + 1}].tasks[{place}]", task, number


def _members(node: Node) -> Mapping[str, Node]:
    return node.value if isinstance(node.value, dict) else {}


def _items(node: Node, key: str) -> Sequence[Node]:
    member = _members(node).get(key)
    return member.value if member is not None and isinstance(member.value, list) else ()


def _texts(node: Node, *keys: str) -> Iterator[tuple[str, Node]]:
    for key in keys:
        for item in _items(node, key):
            if isinstance(item.value, str):
                yield key, item


def _ids(placed: Sequence[_Placed], mistakes: Mistakes) -> list[str]:
    lines: dict[str, int | None] = {}
    for place, node, _ in placed:
        key, named = _name(node)
        if named is None:
            continue
        if named.value in lines:
            first = f" on line {line}" if (line := lines[str(named.value)]) else ""
            shown = one_line(str(named.value), limit=60)
            mistakes.add(
                named, f"`{place}.{key}` is `{shown}`, which another task{first} already has"
            )
        lines.setdefault(str(named.value), named.line)
    taken = {*lines}
    names = ((_name(node)[1], node) for _, node, _ in placed)
    return [str(named.value) if named else _free(node, taken) for named, node in names]


def _name(node: Node) -> tuple[str, Node | None]:
    for key in _NAMES:
        member = _members(node).get(key)
        if member is not None and isinstance(member.value, str):
            return key, member
    return "", None


def _free(node: Node, taken: set[str]) -> str:
    """Return an id that no task has yet: `backend`, `backend-2`, `backend-3` and so on."""
    agent = _members(node).get("agent")
    base = agent.value if agent is not None and isinstance(agent.value, str) else "task"
    base = base if is_id(base) else "task"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name


class _Stages:
    """Numbers the stages: by their order in `stages`, else by number or first use."""

    def __init__(self, root: Node, nodes: Sequence[Node], mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._listed = "stages" in _members(root)
        names = [_key(stage, "name") for stage in _items(root, "stages")]
        if not self._listed:
            names = [_key(node, "stage") for node in nodes]
            if all(isinstance(name, int) for name in names if name is not None):
                names.sort(key=lambda name: name if isinstance(name, int) else 0)
        self._numbers = {
            str(name): number for number, name in reversed([*enumerate(names)]) if name is not None
        }

    def number(self, place: str, node: Node, within: int | None) -> int | None:
        name = _key(node, "stage")
        if name is None:
            return within
        member = _members(node)["stage"]
        if within is not None:
            self._mistakes.add(member, f"`{place}.stage`: the task is already listed in a stage")
        elif str(name) not in self._numbers:
            shown = one_line(str(name), limit=60)
            meant = self._mistakes.meant(str(name), list(self._numbers))
            self._mistakes.add(member, f"`{place}.stage` is `{shown}`, which is not a stage{meant}")
        return self._numbers.get(str(name)) if within is None else within


def _key(node: Node, key: str) -> _Key | None:
    member = _members(node).get(key)
    return member.value if member is not None and isinstance(member.value, (str, int)) else None


def edges_of(tasks: Sequence[Written], mistakes: Mistakes) -> dict[str, list[str]]:
    """Return each task's dependencies: the tasks that it names, and those of the previous stage."""
    by_id = {task.id: task for task in tasks}
    before = _stage_before(tasks)
    edges: dict[str, list[str]] = {}
    for task in tasks:
        named: dict[str, None] = {}
        for key, item in _texts(task.node, *_BEFORE):
            if item.value in by_id:
                named[str(item.value)] = None
            else:
                shown = one_line(str(item.value), limit=60)
                meant = mistakes.meant(str(item.value), [*by_id])
                mistakes.add(
                    item, f"`{task.place}.{key}` names `{shown}`, which is not a task{meant}"
                )
        edges[task.id] = list(named | dict.fromkeys(before.get(task.stage, ())))
    for cycle in cycles(edges):
        path = " -> ".join([*cycle, cycle[0]])
        mistakes.add(
            by_id[cycle[0]].node, f"tasks depend on each other: {one_line(path, limit=300)}"
        )
    return edges


def _stage_before(tasks: Sequence[Written]) -> Mapping[int | None, Sequence[str]]:
    """Return the ids of the previous stage's tasks, by stage; stages without tasks do not count."""
    members: dict[int, list[str]] = {}
    for task in tasks:
        if task.stage is not None:
            members.setdefault(task.stage, []).append(task.id)
    numbers = sorted(members)
    return {number: members[earlier] for earlier, number in pairwise(numbers)}


def after_a_stage(tasks: Sequence[Written]) -> frozenset[str]:
    """Return the ids of the tasks whose stage follows another stage."""
    before = _stage_before(tasks)
    return frozenset(task.id for task in tasks if task.stage in before)


def inputs_of(task: Written) -> list[str]:
    """Return the ids of the tasks whose results a task gets."""
    return list(dict.fromkeys(str(item.value) for _, item in _texts(task.node, *_REDUCED)))


Edges = Mapping[str, Collection[str]]
"""Ids of the dependencies of each task; each dependency is a key too."""


def in_order(edges: Edges) -> list[str]:
    """Return the sorted ids of all tasks, except those that can never run because of a cycle.

    Args:
        edges: Dependencies in the order of the file, which is kept where possible.
    """
    names = list(edges)
    places = {task: place for place, task in enumerate(names)}
    sorter = TopologicalSorter(edges)
    with suppress(CycleError):
        sorter.prepare()
    order: list[str] = []
    ready: list[int] = []
    while sorter.is_active():
        for task in sorter.get_ready():
            heappush(ready, places[task])
        order.append(names[heappop(ready)])
        sorter.done(order[-1])
    return order


def cycles(edges: Edges) -> list[list[str]]:
    """Return cycles of tasks that depend on each other. No task is in two cycles.

    Each cycle starts with its first task in the file; each task depends on the next, and the last
    on the first.
    """
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            # In this list, each task is a dependency of the next, and the first is repeated.
            circle = error.args[1][:0:-1]
        else:
            return found
        start = circle.index(next(task for task in edges if task in circle))
        found.append(circle[start:] + circle[:start])
        edges = {
            task: [other for other in before if other not in circle]
            for task, before in edges.items()
            if task not in circle
        }
