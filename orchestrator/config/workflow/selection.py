"""Select some of a workflow's tasks."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.suggest import did_you_mean
from orchestrator.config.workflow.model import Earlier, Workflow


class Selection(NamedTuple):
    """A workflow with the selected tasks, and notices for the user."""

    workflow: Workflow
    notices: tuple[str, ...]
    """Messages about dependencies that are not selected."""


def only(workflow: Workflow, names: Sequence[str]) -> Selection:
    """Select the named tasks.

    Args:
        workflow: All tasks.
        names: Ids of tasks; the id of a `foreach` selects all its batches.

    Raises:
        ConfigError: A named task does not exist.
    """
    return _select(workflow, _ids_of(workflow, names))


def starting_at(workflow: Workflow, names: Sequence[str]) -> Selection:
    """Select the named tasks and all tasks that depend on them, directly or indirectly.

    Args:
        workflow: All tasks.
        names: Ids of tasks; the id of a `foreach` selects all its batches.

    Raises:
        ConfigError: A named task does not exist.
    """
    kept = _ids_of(workflow, names)
    for task in workflow.tasks:
        if kept & {*task.depends_on}:
            kept.add(task.id)
    return _select(workflow, kept)


def missing(workflow: Workflow, done: Mapping[str, Earlier]) -> Workflow:
    """Select the tasks that an earlier run did not complete; they start from that run's results.

    Args:
        workflow: All tasks.
        done: The tasks that succeeded in the earlier run, by id.

    Raises:
        ConfigError: All tasks succeeded in the earlier run.
    """
    tasks = []
    for task in workflow.tasks:
        if task.id not in done:
            before = tuple(other for other in task.depends_on if other not in done)
            earlier = tuple(done[other] for other in task.depends_on if other in done)
            update = {"depends_on": before, "earlier": (*task.earlier, *earlier)}
            tasks.append(task.model_copy(update=update))
    if not tasks:
        raise ConfigError(
            "all tasks of the workflow succeeded in the earlier run: no task is left to run",
            key="workflow.done",
        )
    return Workflow.model_validate({**dict(workflow), "tasks": tasks, "done": tuple(done.values())})


def _ids_of(workflow: Workflow, names: Sequence[str]) -> set[str]:
    known = {task.id: {task.id} for task in workflow.tasks}
    for task in workflow.tasks:
        if task.group is not None:
            known.setdefault(task.group, set()).add(task.id)
    problems = [
        f"there is no task `{one_line(name, limit=60)}`{did_you_mean(name, [*known])}"
        for name in names
        if name not in known
    ]
    if problems:
        shown = ", ".join(f"`{one_line(name, limit=60)}`" for name in [*known][:20])
        raise ConfigError(
            "; ".join(problems), key="task.unknown", hint=f"the workflow's tasks are {shown}"
        )
    return set[str]().union(*(known[name] for name in names))


def _select(workflow: Workflow, kept: Collection[str]) -> Selection:
    tasks, notices = [], []
    for task in workflow.tasks:
        if task.id not in kept:
            continue
        left_out = [other for other in task.depends_on if other not in kept]
        if left_out:
            names = ", ".join(f"`{name}`" for name in left_out)
            notices.append(f"`{task.id}` starts without its dependencies: {names}")
        available = {*kept, *(earlier.task for earlier in task.earlier)}
        inputs = tuple(other for other in task.inputs if other in available)
        if task.inputs and not inputs:
            names = ", ".join(f"`{name}`" for name in task.inputs[:10])
            raise ConfigError(
                f"task `{task.id}` reduces the results of {names}, none of which is selected",
                key="task.unselected",
                hint="select one of the reduced tasks, or use results of an earlier run: "
                "`--after RUN`",
            )
        before = tuple(other for other in task.depends_on if other in kept)
        # A failure handler that the user selected without its dependencies runs unconditionally.
        when = task.when if before else "on_success"
        # A task that starts from a different commit must not lend its result to a later run.
        digest = "" if left_out else task.digest
        update = {"depends_on": before, "inputs": inputs, "when": when, "digest": digest}
        tasks.append(task.model_copy(update=update))
    selected = Workflow.model_validate({**dict(workflow), "tasks": tuple(tasks)})
    return Selection(selected, tuple(dict.fromkeys(notices)))
