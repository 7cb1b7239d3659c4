"""Workflows to draw, and their edges, to compare with the drawings."""

import random

from orchestrator.config.workflow.model import Task, Workflow

RELEASE = {
    "user-management": [],
    "post-system": [],
    "comment-system": ["post-system"],
    "user-ui": ["user-management"],
    "post-ui": ["post-system"],
    "comment-ui": ["comment-system"],
    "database-migrations": ["user-management", "post-system", "comment-system"],
    "api-documentation": ["user-management", "post-system", "comment-system"],
    "e2e-tests": ["user-ui", "post-ui", "comment-ui", "database-migrations"],
    "performance-tests": ["e2e-tests"],
    "staging-deploy": ["performance-tests", "api-documentation"],
    "production-deploy": ["staging-deploy"],
}


def workflow(tasks: dict[str, list[str]], **more) -> Workflow:
    return Workflow(
        name="a workflow",
        tasks=tuple(Task(id=name, task=name, depends_on=after) for name, after in tasks.items()),
        **more,
    )


def any_workflow(seed: int) -> Workflow:
    """Return a random workflow: narrow or wide, sparse or dense, with names of many lengths."""
    choose = random.Random(seed)
    count, reach = choose.randint(1, 30), choose.choice((2, 5, 30))
    density = choose.choice((0.1, 0.3, 0.7))
    names = [f"{'long-' * choose.randint(0, 6)}t{number}" for number in range(count)]
    return workflow(
        {
            name: [one for one in names[max(0, n - reach) : n] if choose.random() < density]
            for n, name in enumerate(names)
        }
    )


def reduced(tasks: dict[str, list[str]]) -> set[tuple[str, str]]:
    """Return the edges that no longer path implies, found by following all paths."""

    def reaches(start: str, end: str) -> bool:
        return any(one == end or reaches(one, end) for one in tasks[start] if one in tasks)

    return {
        (before, name)
        for name, after in tasks.items()
        for before in after
        if not any(other != before and reaches(other, before) for other in after)
    }


def edges_of(one: Workflow) -> set[tuple[str, str]]:
    return reduced({task.id: list(task.depends_on) for task in one.tasks})


def batches(**more) -> Workflow:
    each = [Task(id=f"move-{n}", task="t", group="move", depends_on=("list",)) for n in (1, 2, 3)]
    ids = tuple(task.id for task in each)
    return Workflow(
        name="w",
        tasks=(
            Task(id="list", task="t"),
            *each,
            Task(id="sum-up", task="t", depends_on=ids, inputs=ids, **more),
        ),
    )
