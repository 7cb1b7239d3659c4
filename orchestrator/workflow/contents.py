"""Digests of what tasks do: tasks with one digest do the same, whatever their ids. Pure."""

import json
from collections import defaultdict, deque
from collections.abc import Mapping
from hashlib import sha256

from orchestrator.workflow.model import Task, Workflow

_SETTINGS = (
    *("agent", "agent_cli", "model", "image", "setup", "checks", "paths", "enforce"),
    "services",
)
"""Settings that change a task's work, and not only how long it may take or what it may use."""


def with_digests(workflow: Workflow) -> Workflow:
    """Return a workflow whose tasks have their digests."""
    found = digests(workflow)
    tasks = tuple(task.model_copy(update={"digest": found[task.id]}) for task in workflow.tasks)
    return workflow.model_copy(update={"tasks": tasks})


def digests(workflow: Workflow) -> dict[str, str]:
    """Return the digests of all tasks by their ids.

    A digest covers the task's text, the settings that change its work, and the digests of what it
    depends on: a task behind one that changed has changed too. A task that has one keeps it.
    """
    found: dict[str, str] = {}
    for task in workflow.tasks:
        known = {**found, **{one.task: one.digest for one in task.earlier}}
        found[task.id] = task.digest or _digest(task, known)
    return found


def _digest(task: Task, known: Mapping[str, str]) -> str:
    settings = task.settings.model_dump(mode="json", include=set(_SETTINGS))
    before = [known[name] for name in (*(one.task for one in task.earlier), *task.depends_on)]
    inputs = [known[name] for name in task.inputs]
    content = [task.task, settings, task.mode, task.when, before, inputs]
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def matches(workflow: Workflow, earlier: Mapping[str, str]) -> dict[str, str]:
    """Return which earlier task does what each task does, as far as there is one.

    Args:
        workflow: The tasks.
        earlier: Digests of the earlier tasks by their ids, in their order.

    Returns:
        Ids of earlier tasks by those of the workflow's; no earlier task is there twice.
    """
    wanted = digests(workflow)
    found = {name: name for name, digest in wanted.items() if earlier.get(name) == digest}
    left: dict[str, deque[str]] = defaultdict(deque)
    for name, digest in earlier.items():
        if name not in found:
            left[digest].append(name)
    for name, digest in wanted.items():
        if name not in found and left[digest]:
            found[name] = left[digest].popleft()
    return found
