"""Sort tasks so that each comes after its dependencies, in the order of the file; find cycles."""

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush

Edges = Mapping[str, Collection[str]]
"""Ids of the dependencies of each task; each dependency is a key too."""


def in_order(edges: Edges) -> list[str]:
    """Return the sorted ids of all tasks, except those that can never run because of a cycle.

    Args:
        edges: Dependencies in the order of the file, which is kept where possible.
    """
    place = {task: number for number, task in enumerate(edges)}
    missing = {task: len({*before}) for task, before in edges.items()}
    after: dict[str, list[str]] = {task: [] for task in edges}
    for task, before in edges.items():
        for other in {*before}:
            after[other].append(task)
    ready = [place[task] for task in edges if not missing[task]]
    heapify(ready)
    names, order = list(edges), []
    while ready:
        order.append(names[heappop(ready)])
        for task in after[order[-1]]:
            missing[task] -= 1
            if not missing[task]:
                heappush(ready, place[task])
    return order


def cycles(edges: Edges) -> list[list[str]]:
    """Return cycles of tasks that depend on each other. No task is in two cycles.

    Each cycle starts with its first task in the file; each task depends on the next, and the last
    on the first.
    """
    found = []
    while stuck := _unreachable(edges):
        circle = _find_cycle(stuck)
        found.append(circle)
        edges = {
            task: [other for other in before if other not in circle]
            for task, before in stuck.items()
            if task not in circle
        }
    return found


def _unreachable(edges: Edges) -> dict[str, list[str]]:
    """Return the tasks that can never run, each with those dependencies that can never run."""
    done = {*in_order(edges)}
    return {
        task: [other for other in before if other not in done]
        for task, before in edges.items()
        if task not in done
    }


def _find_cycle(stuck: Mapping[str, list[str]]) -> list[str]:
    """Return one cycle among tasks that can never run."""
    path: dict[str, None] = {}
    task = next(iter(stuck))
    while task not in path:
        path[task] = None
        task = stuck[task][0]
    walked = list(path)
    circle = walked[walked.index(task) :]
    first = min(circle, key=list(stuck).index)
    start = circle.index(first)
    return circle[start:] + circle[:start]
