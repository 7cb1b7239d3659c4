"""Select some of a workflow's tasks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from orchestrator.errors import ConfigError
from orchestrator.text.sanitize import one_line
from orchestrator.text.suggest import did_you_mean
from orchestrator.workflow.model import Earlier, Task, Workflow


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
    tasks = tuple(_without_done(task, done) for task in workflow.tasks if task.id not in done)
    if not tasks:
        raise ConfigError(
            "all tasks of the workflow succeeded in the earlier run: no task is left to run"
        )
    return Workflow.model_validate({**dict(workflow), "tasks": tasks, "done": tuple(done.values())})


def _without_done(task: Task, done: Mapping[str, Earlier]) -> Task:
    before = tuple(other for other in task.depends_on if other not in done)
    earlier = tuple(done[other] for other in task.depends_on if other in done)
    return task.model_copy(update={"depends_on": before, "earlier": (*task.earlier, *earlier)})


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
        raise ConfigError("; ".join(problems), hint=f"the workflow's tasks are {shown}")
    return set[str]().union(*(known[name] for name in names))


def _select(workflow: Workflow, kept: Collection[str]) -> Selection:
    tasks = [task for task in workflow.tasks if task.id in kept]
    notices = tuple(dict.fromkeys(notice for task in tasks for notice in _missing(task, kept)))
    for task in tasks:
        _check_inputs(task, kept)
    update = {"tasks": tuple(_without(task, kept) for task in tasks)}
    return Selection(Workflow.model_validate({**dict(workflow), **update}), notices)


def _missing(task: Task, kept: Collection[str]) -> Iterator[str]:
    left_out = [other for other in task.depends_on if other not in kept]
    if left_out:
        names = ", ".join(f"`{name}`" for name in left_out)
        yield f"`{task.id}` starts without its dependencies: {names}"


def _inputs(task: Task, kept: Collection[str]) -> Iterator[str]:
    done = {earlier.task for earlier in task.earlier}
    yield from (other for other in task.inputs if other in kept or other in done)


def _check_inputs(task: Task, kept: Collection[str]) -> None:
    """Raise an error if a task combines the results of other tasks and none of them is selected."""
    if task.inputs and not any(_inputs(task, kept)):
        names = ", ".join(f"`{name}`" for name in task.inputs[:10])
        raise ConfigError(
            f"task `{task.id}` reduces the results of {names}, none of which is selected",
            hint="select one of the reduced tasks, or use results of an earlier run: `--after RUN`",
        )


def _without(task: Task, kept: Collection[str]) -> Task:
    before = tuple(other for other in task.depends_on if other in kept)
    inputs = tuple(_inputs(task, kept))
    # A failure handler that the user selected without its dependencies runs unconditionally.
    when = task.when if before else "on_success"
    update: dict[str, object] = {"depends_on": before, "inputs": inputs, "when": when}
    if before != task.depends_on:
        # The task starts from a different commit, so a later run must not reuse its result.
        update["digest"] = ""
    return task.model_copy(update=update)
