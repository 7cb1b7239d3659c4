"""Calculate a digest of each task: tasks with equal digests do the same work, whatever their id."""

import json
from collections import defaultdict, deque
from collections.abc import Mapping
from hashlib import sha256

from orchestrator.config.workflow.model import Workflow

_SETTINGS = (
    *("agent", "agent_cli", "model", "image", "setup", "checks", "paths", "enforce"),
    "services",
)
"""Settings that are part of a digest, because they change the work; limits and timeouts do not."""


def with_digests(workflow: Workflow) -> Workflow:
    """Return a copy of a workflow in which each task has its digest."""
    by_id = digests(workflow)
    tasks = tuple(task.model_copy(update={"digest": by_id[task.id]}) for task in workflow.tasks)
    return workflow.model_copy(update={"tasks": tasks})


def digests(workflow: Workflow) -> dict[str, str]:
    """Return the digest of each task by id.

    A digest covers the task's text, the settings that change the task's work, and the digests of
    its dependencies, so that a change of a dependency changes it. An existing digest is kept.
    """
    by_id: dict[str, str] = {}
    for task in workflow.tasks:
        known = {**by_id, **{earlier.task: earlier.digest for earlier in task.earlier}}
        settings = task.settings.model_dump(mode="json", include=set(_SETTINGS))
        names = (*(earlier.task for earlier in task.earlier), *task.depends_on)
        before, inputs = ([known[name] for name in ids] for ids in (names, task.inputs))
        # protection: dependents-of-changed-task-are-repeated
        content = [task.task, settings, task.mode, task.when, before, inputs]
        digest = sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        by_id[task.id] = task.digest or digest
    return by_id


def matches(workflow: Workflow, earlier: Mapping[str, str]) -> dict[str, str]:
    """Return, for each task of a workflow, the id of an earlier run's task that did the same work.

    `earlier` has the digests of an earlier run's tasks, by id and in order. No earlier task is
    returned twice. Tasks without a match are left out.
    """
    wanted = digests(workflow)
    matched = {name: name for name, digest in wanted.items() if earlier.get(name) == digest}
    left: dict[str, deque[str]] = defaultdict(deque)
    for name, digest in earlier.items():
        if name not in matched:
            left[digest].append(name)
    for name, digest in wanted.items():
        # protection: batches-are-identified-by-content
        if name not in matched and left[digest]:
            matched[name] = left[digest].popleft()
    return matched
