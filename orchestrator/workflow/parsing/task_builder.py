"""Make the tasks that are carried out from those that are written: batches, texts, defaults."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from orchestrator.config.container import Network
from orchestrator.config.document import Node
from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError
from orchestrator.text.path_patterns import directories
from orchestrator.workflow.model import MOST_TASKS, WHEN, Task, WorkerSettings
from orchestrator.workflow.parsing.diagnostics import Mistakes
from orchestrator.workflow.parsing.foreach import Expand, as_text, batches, source_of, values_of
from orchestrator.workflow.parsing.manifest import LONGEST_ID, Foreach, Manifest, ManifestTask
from orchestrator.workflow.parsing.task_nodes import Written, reduced_by
from orchestrator.workflow.parsing.templates import Values, fill, fill_task, left_open
from orchestrator.workflow.parsing.variables import RESULTS

LONGEST_TASK = 100_000
"""Characters; what a program can be called with ends not far above."""
_SETTINGS = frozenset(WorkerSettings.model_fields)


@dataclass
class Maker:
    """Makes the tasks of one file."""

    manifest: Manifest
    defaults: Mapping[str, Node]
    values: Values
    expand: Expand
    mistakes: Mistakes
    edges: Mapping[str, Sequence[str]]
    notices: list[str] = field(default_factory=list)
    made: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Which tasks each written one became."""
    instead: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What one that became none waited for."""
    after_stage: frozenset[str] = frozenset()
    """The tasks that a stage comes before."""

    def tasks(self, written: Sequence[Written]) -> list[Task]:
        """Make all tasks.

        Args:
            written: Each after those it depends on.
        """
        found = [task for one in written for task in self._tasks_of(one)]
        if len(found) > MOST_TASKS:
            self.mistakes.add(None, f"there are {len(found)} tasks, more than {MOST_TASKS}")
        elif not any(self.made.values()):
            self.mistakes.add(None, "no task is left: there was no item for any `foreach`")
        return found

    def _tasks_of(self, one: Written) -> Iterator[Task]:
        whole = Written(place=one.place, node=self._with_defaults(one), id=one.id, stage=one.stage)
        if "foreach" not in one.members:
            self.made[one.id] = (one.id,)
            yield from self._task(whole, one.id, self.values, None)
            return
        cut = self._batches(one)
        if cut is None:
            self.made[one.id] = (one.id,)
            self.notices.append(f"how many tasks `{one.id}` becomes is known when it is run")
            yield from self._task(whole, one.id, self.values, one.id)
            return
        names = tuple(f"{one.id}-{number}" for number in range(1, len(cut) + 1))
        self.made[one.id] = names
        for name in self.edges.keys() & {*names}:
            self.mistakes.add(one.node, f"`{one.place}` makes a task `{name}`, and there is one")
        if not names:
            self.instead[one.id] = self._before(one.id)
            self.notices.append(f"there is no item for `{one.id}`: what depends on it goes on")
        for number, (name, batch) in enumerate(zip(names, cut, strict=True), start=1):
            yield from self._task(whole, name, {**self.values, **values_of(batch, number)}, one.id)

    def _with_defaults(self, one: Written) -> Node:
        members = {**self.defaults, **one.members}
        limits = [part.get("limits") for part in (self.defaults, one.members)]
        below, above = (node.value if node is not None else None for node in limits)
        if isinstance(below, dict) and isinstance(above, dict):
            members["limits"] = Node({**below, **above}, members["limits"].line)
        return Node(members, one.node.line)

    def _batches(self, one: Written) -> list[tuple[str, ...]] | None:
        """Cut the items of a `foreach`; None when they are not known yet."""
        node = fill(one.members["foreach"], self.values)
        foreach = self.mistakes.checked(Foreach, node, f"{one.place}.foreach")
        if foreach is None:
            return None
        batch = one.members.get("batch")
        size = batch.value if batch is not None and isinstance(batch.value, int) else 1
        source = source_of(foreach, one.id)
        try:
            items = (
                [as_text(item) for item in foreach.items or (foreach.words or "").split()]
                if source is None
                else self.expand(source)
            )
            return None if items is None else batches(items, size)
        except ConfigError as error:
            self.mistakes.add(node, f"`{one.place}.foreach`: {error.message}")
            return None

    def _task(self, whole: Written, name: str, values: Values, group: str | None) -> Iterator[Task]:
        node = fill_task(whole.node, values)
        asked = self.mistakes.checked(ManifestTask, node, whole.place)
        problem = asked and self._problem(whole, asked, name)
        if problem:
            self.mistakes.add(node, f"`{whole.place}`: {problem}")
        if asked is None or problem:
            return
        yield Task(
            id=name,
            task=asked.task or whole.id,
            depends_on=self._before(whole.id),
            inputs=tuple(made for other in reduced_by(whole) for made in self.made[other]),
            results_at=_results_at(whole, values),
            when=self._when(whole, asked),
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
        """Return what a task waits for; in place of one that became none, what that waited for."""
        before = (self.instead.get(one) or self.made[one] for one in self.edges[task_id])
        return tuple(dict.fromkeys(made for several in before for made in several))

    def _when(self, whole: Written, asked: ManifestTask) -> WHEN:
        goes_on = self.manifest.continue_on_error and whole.id in self.after_stage
        return "always" if goes_on and "when" not in asked.model_fields_set else asked.when

    def _problem(self, whole: Written, asked: ManifestTask, name: str) -> str | None:
        """Return what is wrong although each part is right."""
        if len(name) > LONGEST_ID:
            return f"its id is too long for one of {len(self.made[whole.id])} tasks"
        if len((asked.task or "").encode()) > LONGEST_TASK:
            advice = ", give a smaller `batch`" if asked.batch is not None else ""
            return f"its text is longer than {LONGEST_TASK} bytes{advice}"
        private = self.manifest.policy.constraints.privacy == "private"
        if private and asked.network == "open":
            return "`network` is `open`, but `policy.constraints.privacy` is `private`"
        return _unenforceable(asked) or clash(asked, "none" if private else None)


def _results_at(whole: Written, values: Values) -> tuple[int, ...]:
    text = whole.members.get("task")
    if text is None or not isinstance(text.value, str) or not reduced_by(whole):
        return ()
    return left_open(text.value, values, RESULTS)


def _unenforceable(asked: ManifestTask) -> str | None:
    """Return why a task cannot be confined to its paths."""
    if asked.enforce is None:
        return None
    if not asked.paths:
        return "`enforce` needs `paths`: the directories that the task can write to"
    try:
        directories(asked.paths)
    except ValueError as error:
        return f"`enforce: ro`: {error}"
    return None


def clash(asked: WorkerSettings, network: Network | None) -> str | None:
    """Return what in a task's settings does not go together, as a run's own would be refused."""
    isolation = _given(network=asked.network or network, ports=asked.ports)
    project = _given(services=asked.services)
    try:
        ParallelConfig.model_validate(
            {"tasks": ("a task",), "isolation": isolation, "project": project}
        )
    except ValidationError as error:
        return error.errors()[0]["msg"].removeprefix("Value error, ")
    return None


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value}
