"""The order of tasks: each after those it depends on, else as in the file. Pure."""

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush

Edges = Mapping[str, Collection[str]]
"""What each task depends on; all of it is a key too."""


def in_order(edges: Edges) -> list[str]:
    """Return all tasks in an order in which they could run one by one, without those in cycles.

    Args:
        edges: In the order of the file, which decides where there is a choice.
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
    """List circles of tasks that wait for each other, no task in two of them.

    Each begins with the task that comes first in the file; each task depends on the next one, and
    the last on the first.
    """
    found = []
    while stuck := _stuck(edges):
        circle = _circle(stuck)
        found.append(circle)
        edges = {
            task: [other for other in before if other not in circle]
            for task, before in stuck.items()
            if task not in circle
        }
    return found


def _stuck(edges: Edges) -> dict[str, list[str]]:
    """Return the tasks that can never run, with those of their kind that they wait for."""
    done = {*in_order(edges)}
    return {
        task: [other for other in before if other not in done]
        for task, before in edges.items()
        if task not in done
    }


def _circle(stuck: Mapping[str, list[str]]) -> list[str]:
    """Follow what a stuck task waits for until it comes round."""
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
