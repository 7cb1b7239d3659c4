"""Build a workflow's tasks: apply defaults, create tasks of each `foreach`, fill in templates."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.path_patterns import directories
from orchestrator.config.node import Node
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import MOST_TASKS, Task, WorkerSettings
from orchestrator.config.workflow.parsing.diagnostics import Mistakes
from orchestrator.config.workflow.parsing.foreach import (
    Expand,
    as_text,
    batches,
    source_of,
    values_of,
)
from orchestrator.config.workflow.parsing.manifest import (
    LONGEST_ID,
    Foreach,
    Manifest,
    ManifestTask,
)
from orchestrator.config.workflow.parsing.task_nodes import Written, inputs_of
from orchestrator.config.workflow.parsing.templates import Values, fill, fill_task, left_open, uses
from orchestrator.config.workflow.parsing.variables import RESULTS

LONGEST_TASK = 100_000
"""Maximum size in bytes of a task's text, which becomes a program's argument: Linux allows 128 KiB.
"""
_SETTINGS = frozenset(WorkerSettings.model_fields)


@dataclass
class Maker:
    """Builds the tasks of one workflow file."""

    manifest: Manifest
    defaults: Mapping[str, Node]
    values: Values
    expand: Expand
    mistakes: Mistakes
    edges: Mapping[str, Sequence[str]]
    notices: list[str] = field(default_factory=list)
    made: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids of the tasks that were built from each task in the file."""
    instead: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Dependencies of each `foreach` task without items; its dependents depend on them instead."""
    keys: dict[str, Mapping[str, Node]] = field(default_factory=dict)
    """The keys of each built task, such as `network` or `limits.memory`, with their values."""
    after_stage: frozenset[str] = frozenset()
    """Ids of the tasks whose stage follows another stage."""

    def tasks(self, written: Sequence[Written]) -> list[Task]:
        """Build all tasks.

        Args:
            written: The tasks of the file, in topological order.
        """
        tasks = [built for task in written for built in self._tasks_of(task)]
        count = sum(map(len, self.made.values()))
        if count > MOST_TASKS:
            self.mistakes.add(None, f"there are {count} tasks, more than {MOST_TASKS}")
        elif not any(self.made.values()):
            self.mistakes.add(
                None, "the workflow has no tasks: the list of each `foreach` is empty"
            )
        return tasks

    def _tasks_of(self, task: Written) -> Iterator[Task]:
        members = {**self.defaults, **task.members}
        limits = [part.get("limits") for part in (self.defaults, task.members)]
        below, above = (node.value if node is not None else None for node in limits)
        if isinstance(below, dict) and isinstance(above, dict):
            members["limits"] = Node({**below, **above}, members["limits"].line)
        node = Node(members, task.node.line)
        whole = Written(place=task.place, node=node, id=task.id, stage=task.stage)
        if "foreach" not in task.members:
            self.made[task.id] = (task.id,)
            yield from self._task(whole, task.id, self.values, None)
            return
        cut = self._batches(task)
        if cut is None:
            self.made[task.id] = (task.id,)
            self.notices.append(f"the number of tasks of `{task.id}` is not known before the run")
            yield from self._task(whole, task.id, self.values, task.id)
            return
        names = tuple(f"{task.id}-{number}" for number in range(1, len(cut) + 1))
        self.made[task.id] = names
        if sum(map(len, self.made.values())) > MOST_TASKS:
            return
        for name in self.edges.keys() & {*names}:
            self.mistakes.add(
                task.node,
                f"`{task.place}` creates a task `{name}`, but that id is already used",
            )
        if not names:
            self.instead[task.id] = self._before(task.id)
            self.notices.append(f"`{task.id}` has no items: tasks that depend on it run without it")
        for number, (name, batch) in enumerate(zip(names, cut, strict=True), start=1):
            values = {**self.values, **values_of(batch, number)}
            yield from self._task(whole, name, values, task.id)

    def _batches(self, task: Written) -> list[tuple[str, ...]] | None:
        """Return the groups of items of a `foreach` task; None if its items are not known yet."""
        node = fill(task.members["foreach"], self.values)
        foreach = self.mistakes.validate(Foreach, node, f"{task.place}.foreach")
        if foreach is None:
            return None
        used = {bool(use.path) for use in uses(task.node, "") if use.name in ("item", "items")}
        listed = node.value.get("items") if isinstance(node.value, dict) else None
        for number, item in enumerate(listed.value if listed else (), start=1):
            if isinstance(item.value, dict) and used == {False}:
                self.mistakes.add(
                    item,
                    f"`{task.place}.foreach.items[{number}]` is a mapping, of which no text uses a "
                    "part such as `{{item.KEY}}`: put quotes around it if it is a text",
                )
                return None
        batch = task.members.get("batch")
        size = batch.value if batch is not None and isinstance(batch.value, int) else 1
        source = source_of(foreach)
        try:
            items = (
                [as_text(item) for item in foreach.items or (foreach.words or "").split()]
                if source is None
                else self.expand(source)
            )
            return None if items is None else batches(items, size)
        except ConfigError as error:
            self.mistakes.add(node, f"`{task.place}.foreach`: {error.message}")
            return None

    def _task(self, whole: Written, name: str, values: Values, group: str | None) -> Iterator[Task]:
        try:
            node = fill_task(whole.node, values)
        except ConfigError as error:
            self.mistakes.add(whole.node, f"`{whole.place}`: {error.message}")
            return
        asked = self.mistakes.validate(ManifestTask, node, whole.place)
        problem = asked and self._problem(whole, asked, name)
        if problem:
            self.mistakes.add(node, f"`{whole.place}`: {problem}")
        if asked is None or problem:
            return
        members = dict(node.value) if isinstance(node.value, dict) else {}
        limits = members.get("limits", node).value
        inner = limits if "limits" in members and isinstance(limits, dict) else {}
        self.keys[name] = {**members, **{f"limits.{name}": part for name, part in inner.items()}}
        continues = self.manifest.continue_on_error and whole.id in self.after_stage
        text, results_at = whole.members.get("task"), tuple[int, ...]()
        if text is not None and isinstance(text.value, str) and inputs_of(whole):
            results_at = left_open(text.value, values, RESULTS)
        yield Task(
            id=name,
            task=asked.task or whole.id,
            depends_on=self._before(whole.id),
            inputs=tuple(made for other in inputs_of(whole) for made in self.made[other]),
            results_at=results_at,
            when="always" if continues and "when" not in asked.model_fields_set else asked.when,
            critical=asked.critical,
            parallel=asked.parallel,
            resources=asked.resources,
            touches=asked.touches,
            complexity=asked.complexity,
            mode=asked.mode,
            group=group,
            settings=WorkerSettings(
                **{key: getattr(asked, key) for key in _SETTINGS & asked.model_fields_set}
            ),
        )

    def _before(self, task_id: str) -> tuple[str, ...]:
        """Return a task's dependencies; a task without items is replaced by its dependencies."""
        before = (self.instead.get(other) or self.made[other] for other in self.edges[task_id])
        return tuple(dict.fromkeys(built for ids in before for built in ids))

    def _problem(self, whole: Written, asked: ManifestTask, name: str) -> str | None:
        """Return why a task with valid settings is refused; None if it is accepted."""
        if len(name) > LONGEST_ID:
            return (
                "the task's id is too long for the numbered ids of "
                f"{len(self.made[whole.id])} tasks"
            )
        if len((asked.task or "").encode()) > LONGEST_TASK:
            advice = ", set a smaller `batch`" if asked.batch is not None else ""
            return f"the task's text is longer than {LONGEST_TASK} bytes{advice}"
        private = self.manifest.policy.constraints.privacy == "private"
        if private and asked.network not in (None, "none"):
            return f"`network` is `{asked.network}`, but `policy.constraints.privacy` is `private`"
        if asked.enforce is not None:
            if not asked.paths:
                return "`enforce` requires `paths`: the directories that the task may write to"
            try:
                directories(asked.paths)
            except ValueError as error:
                return f"`enforce: ro`: {error}"
        return clash(asked)


def clash(asked: WorkerSettings) -> str | None:
    """Return why a run could not have the task's settings; None if it could."""
    isolation = _without_empty(network=asked.network, ports=asked.ports)
    project = _without_empty(services=asked.services)
    try:
        ParallelConfig.model_validate(
            {"tasks": ("a task",), "isolation": isolation, "project": project}
        )
    except ValidationError as error:
        return error.errors()[0]["msg"].removeprefix("Value error, ")
    return None


def _without_empty(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value}
