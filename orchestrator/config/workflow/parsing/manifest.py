"""The models of a workflow file, before templates are filled in and tasks are created."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from orchestrator.config.loading.sources import agent_names
from orchestrator.config.settings.values import LONGEST, Model
from orchestrator.config.workflow.model import (
    COMPLEXITY,
    WHEN,
    AtOneTime,
    Lock,
    Patterns,
    Prompt,
    WorkerSettings,
)

LONGEST_ID = 100
_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_ID - 1}}}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
BUILT_IN = ("item", "items", "index", "results")
"""Names that have a meaning in templates, so that no variable can have them."""


def is_id(text: str) -> bool:
    """Return whether text is a valid task id."""
    return _ID.fullmatch(text) is not None


def _id(text: str) -> str:
    if not is_id(text):
        raise ValueError(
            "the id of a task must consist of letters, digits, `.`, `_` and `-`, start with a "
            f"letter or digit, and have at most {LONGEST_ID} characters"
        )
    return text


def _program(name: str) -> str:
    known = agent_names()
    if name not in known:
        raise ValueError("must be one of " + ", ".join(f"`{program}`" for program in known))
    return name


def _names(variables: dict[str, Any]) -> dict[str, Any]:
    for name in variables:
        if not VARIABLE.fullmatch(name):
            raise ValueError(
                "the name of a variable must consist of letters, digits and `_`, and not start "
                "with a digit"
            )
        if name in BUILT_IN:
            raise ValueError(f"`{name}` is a built-in name in templates")
    return variables


Id = Annotated[
    str, AfterValidator(_id), WithJsonSchema({"type": "string", "pattern": f"^{_ID.pattern}$"})
]
Ids = tuple[Id, ...]
Scalar = str | int | float | bool


class Foreach(Model):
    """The items of a task with `foreach`; a task is created for each item."""

    items: tuple[Scalar | dict[str, Any], ...] | None = None
    """List of items; `foreach: [a, b]` is a short form. Of an item that is a mapping,
    `{{item.KEY}}` is one value."""
    words: str | None = Field(default=None, min_length=1)
    """Text of which each word is an item, such as a variable: `{{issues}}` with `--var "issues=1
    2"`.
    """
    glob: Patterns | None = None
    """Patterns of files in the commit that the run starts from, such as `src/**/*.py` or `*.md`;
    each file is an item.
    """
    json_file: str | None = Field(default=None, min_length=1, alias="json")
    """JSON file in the commit that the run starts from; it must contain a list of items."""
    command: str | None = Field(default=None, min_length=1)
    """Shell command that runs in a container on the commit that the run starts from; each line of
    its output is an item, or each part between NUL characters, as `git ls-files -z` prints them."""

    @model_validator(mode="after")
    def _one_source(self) -> "Foreach":
        if len(self.model_fields_set) != 1:
            raise ValueError(
                "exactly one of the keys `items`, `words`, `glob`, `json`, `command` is required"
            )
        return self


class TaskDefaults(WorkerSettings):
    """Settings that can be set for one task, or for all tasks of a workflow."""

    agent_cli: Annotated[str, AfterValidator(_program)] | None = None
    """Agent program that performs the task, such as `claude`."""
    critical: bool | None = None
    """`true`: if the task fails, no further tasks start. `false`: if the task fails, the run can
    still succeed. Default: if the task fails, its dependents are skipped, other tasks run, and the
    run fails."""
    resources: tuple[Lock, ...] = ()
    """Locks of the task: tasks that share a lock never run at the same time."""
    touches: Patterns = ()
    """Paths that the task is expected to change; used only for warnings of `spec validate`. `paths`
    restricts what the task may change."""
    complexity: COMPLEXITY | None = None
    """Complexity of the task. By default, one task of `high` complexity runs at a time, two of
    `medium` or ten of `low`; the workflow's `complexity` changes these numbers."""
    mode: Literal["rw", "ro"] | None = None
    """`ro`: the task's worktree is read-only, and its answer is its result. `rw`: the worktree is
    writable; refused if the run is read-only. Default: same as the run."""


class ManifestTask(TaskDefaults):
    """One task of a workflow file."""

    id: Id | None = None
    """Name of the task, for use in `depends_on`. Default: the profile, or `task`, with a number if
    necessary.
    """
    name: Id | None = None
    """Another name for `id`."""
    task: Prompt | None = None
    """Prompt or command of the task. Default: the task's id."""
    depends_on: Ids = ()
    """Tasks that must end before this task starts. The task starts from their merged branches."""
    dependencies: Ids = ()
    """Another name for `depends_on`."""
    stage: str | int | None = None
    """Name or number of the task's stage. The task starts when all tasks of the previous stage have
    ended.
    """
    when: WHEN = "on_success"
    """When the task runs. `on_success`: if all its dependencies succeeded. `on_failure`: if at
    least one of them failed. `always`: in both cases."""
    parallel: bool = True
    """`false`: the task runs alone; no other task runs at the same time."""
    foreach: Foreach | None = None
    """Items for each of which a task `ID-1`, `ID-2` and so on is created; a task that depends on
    `ID` depends on all of them.
    """
    batch: int | None = Field(default=None, ge=1, le=10**12)
    """Number of items for each created task. Default: 1."""
    reduce: Ids = ()
    """Tasks whose results, summaries and diffs this task gets as files, because it combines them;
    `{{results}}` in its text is replaced by their results.
    """
    inputs: Ids = ()
    """Another name for `reduce`."""

    @model_validator(mode="after")
    def _no_alias_twice(self) -> "ManifestTask":
        for name, alias in (("id", "name"), ("depends_on", "dependencies"), ("reduce", "inputs")):
            if {name, alias} <= self.model_fields_set:
                raise ValueError(f"`{name}` and `{alias}` mean the same: use only one of them")
        if self.batch is not None and self.foreach is None:
            raise ValueError("`batch` needs `foreach`")
        return self

    @property
    def before(self) -> tuple[str, ...]:
        """Return the ids of all tasks that this task depends on."""
        named = (*self.depends_on, *self.dependencies, *self.sources)
        return tuple(dict.fromkeys(named))

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the ids of the tasks whose results this task gets."""
        return tuple(dict.fromkeys((*self.reduce, *self.inputs)))


class Stage(Model):
    """A stage of a workflow: its tasks start when all tasks of the previous stage have ended."""

    name: str | int | None = None
    """Name of the stage, by which other tasks can join the stage with their key `stage`."""
    tasks: tuple[ManifestTask, ...] = ()
    """Tasks of the stage."""


class Constraints(Model):
    """The block `constraints` in workflow files of AutomatosX."""

    max_latency: float | None = Field(default=None, gt=0, le=1000 * LONGEST, alias="maxLatency")
    """Milliseconds that a task may take before a warning is printed."""
    privacy: Literal["private", "public"] | None = None
    """`private`: tasks, `setup` and `checks` have no network; a setting that opens a network is
    refused."""


class Policy(Model):
    """The block `policy` in workflow files of AutomatosX."""

    constraints: Constraints = Constraints()
    """Constraints that apply to every task."""


class Manifest(Model):
    """A whole workflow file."""

    name: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the workflow. Default: the file's name."""
    description: str | None = None
    """What the workflow is for, for people who read the file."""
    version: Scalar | None = None
    """Version of the file, for people who read it."""
    tasks: tuple[ManifestTask, ...] = ()
    """Tasks of the workflow, in any order."""
    stages: tuple[Stage, ...] = ()
    """Stages of tasks, which run one after another."""
    defaults: TaskDefaults = TaskDefaults()
    """Settings for all tasks that do not set them themselves."""
    vars: Annotated[dict[str, Scalar | None], AfterValidator(_names)] = Field(default={})
    """Values of `{{NAME}}` in the texts of tasks; `--var NAME=VALUE` overrides them. A variable
    that is `null` must be set by `--var`."""
    continue_on_error: bool = False
    """Whether a stage starts even if tasks of the previous stage failed."""
    complexity: AtOneTime = AtOneTime()
    """Maximum numbers of tasks of each complexity at the same time: `{high: 1, medium: 2, low:
    10}`.
    """
    policy: Policy = Policy()
    """Constraints that apply to the whole workflow."""

    @model_validator(mode="after")
    def _some_task(self) -> "Manifest":
        if not self.tasks and not any(stage.tasks for stage in self.stages):
            raise ValueError("a workflow must have at least one task, in `tasks` or `stages`")
        return self
