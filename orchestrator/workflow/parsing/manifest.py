"""What may be written in a workflow file: what every dialect is read into, before templates."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from orchestrator.config.sources import agent_names
from orchestrator.config.values import Model
from orchestrator.workflow.model import (
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
"""Names in templates that are not the user's variables."""


def is_id(text: str) -> bool:
    """Return whether others can depend on a task by this name."""
    return _ID.fullmatch(text) is not None


def _id(text: str) -> str:
    if not is_id(text):
        raise ValueError(
            "it must be letters, digits, `.`, `_` and `-`, with a letter or digit first, and "
            f"{LONGEST_ID} at most"
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
            raise ValueError("a name is letters, digits and `_`, with no digit first")
        if name in BUILT_IN:
            raise ValueError(f"`{name}` has a meaning of its own in templates")
    return variables


Id = Annotated[
    str, AfterValidator(_id), WithJsonSchema({"type": "string", "pattern": f"^{_ID.pattern}$"})
]
Ids = tuple[Id, ...]
Scalar = str | int | float | bool


class Foreach(Model):
    """What a task is made once for each of."""

    items: tuple[Scalar, ...] | None = None
    """The items themselves; `foreach: [a, b]` says the same."""
    words: str | None = Field(default=None, min_length=1)
    """The words of a text, such as those of a variable: `{{issues}}` with `--var "issues=1 2"`."""
    glob: Patterns | None = None
    """Files of the commit that the run starts from, relative to its top: `src/**/*.py`, `*.md`."""
    json_file: str | None = Field(default=None, min_length=1, alias="json")
    """A file of that commit, which holds a list."""
    command: str | None = Field(default=None, min_length=1)
    """A command for `sh`, run in a container on that commit; each line it prints is an item."""

    @model_validator(mode="after")
    def _one_source(self) -> "Foreach":
        if len(self.model_fields_set) != 1:
            raise ValueError("it needs one of `items`, `words`, `glob`, `json` and `command`")
        return self


class TaskDefaults(WorkerSettings):
    """What can be said of all tasks at once."""

    agent_cli: Annotated[str, AfterValidator(_program)] | None = None
    """The agent program."""
    critical: bool | None = None
    """`true`: when it fails, no further task starts. `false`: its failure does not make the run
    fail. Default: tasks that depend on it are skipped, all others go on, and the run has failed."""
    resources: tuple[Lock, ...] = ()
    """Names of what it needs for itself: no two tasks that name the same run at one time."""
    touches: Patterns = ()
    """Where it is expected to make changes, for warnings of `spec validate` alone; `paths` says
    where it must."""
    complexity: COMPLEXITY | None = None
    """How demanding it is. `high` runs beside no other task that says so, of `medium` two run at
    one time, of `low` ten, unless `complexity` of the workflow says otherwise."""
    mode: Literal["rw", "ro"] | None = None
    """`ro`: the task cannot write to its worktree, and answers with what it says. `rw`: it can,
    and is refused where the run is read-only. Default: as the run."""


class ManifestTask(TaskDefaults):
    """One task as it is written."""

    id: Id | None = None
    """What others depend on it by. Default: the profile, or `task`, and a number if need be."""
    name: Id | None = None
    """Same as `id`."""
    task: Prompt | None = None
    """What its agent is asked to do. Default: the id."""
    depends_on: Ids = ()
    """Tasks that must be over before it starts, and from whose merged branches it starts."""
    dependencies: Ids = ()
    """Same as `depends_on`."""
    stage: str | int | None = None
    """The stage it is in; it starts when all tasks of the stage before are over."""
    when: WHEN = "on_success"
    """`on_success`: it runs if all it depends on succeeded. `on_failure`: if one of them did not.
    `always`: however they ended."""
    parallel: bool = True
    """`false`: no other task runs beside it."""
    foreach: Foreach | None = None
    """Makes a task for each item, `ID-1`, `ID-2` and so on; who depends on `ID` depends on all."""
    batch: int | None = Field(default=None, ge=1)
    """Items of one such task. Default: 1."""
    reduce: Ids = ()
    """Tasks that it depends on and whose results, summaries and diffs it is given as files;
    `{{results}}` in its text stands for them."""
    inputs: Ids = ()
    """Same as `reduce`."""

    @model_validator(mode="after")
    def _said_once(self) -> "ManifestTask":
        for one, other in (("id", "name"), ("depends_on", "dependencies"), ("reduce", "inputs")):
            if {one, other} <= self.model_fields_set:
                raise ValueError(f"`{one}` and `{other}` are the same, give one of them")
        if self.batch is not None and self.foreach is None:
            raise ValueError("`batch` needs `foreach`")
        return self

    @property
    def before(self) -> tuple[str, ...]:
        """The tasks that it says must be over."""
        named = (*self.depends_on, *self.dependencies, *self.reduced)
        return tuple(dict.fromkeys(named))

    @property
    def reduced(self) -> tuple[str, ...]:
        """The tasks whose results it is given."""
        return tuple(dict.fromkeys((*self.reduce, *self.inputs)))


class Stage(Model):
    """Tasks that run at one time, when all of the stage before are over."""

    name: str | int | None = None
    """What it is called; tasks elsewhere in the file join it with `stage`."""
    tasks: tuple[ManifestTask, ...] = ()
    """Its tasks."""


class Constraints(Model):
    """What AutomatosX calls constraints."""

    max_latency: float | None = Field(default=None, gt=0, alias="maxLatency")
    """Milliseconds that a task may take before people are warned of it."""
    privacy: Literal["private", "public"] | None = None
    """`private`: no task has a network, nor do `setup` and `checks`; a setting that opens one is
    refused."""


class Policy(Model):
    """What AutomatosX calls a policy."""

    constraints: Constraints = Constraints()
    """What holds for every task."""


class Manifest(Model):
    """A workflow file."""

    name: str | None = Field(default=None, min_length=1, max_length=200)
    """What it is called. Default: the file's name."""
    tasks: tuple[ManifestTask, ...] = ()
    """Its tasks, in any order."""
    stages: tuple[Stage, ...] = ()
    """Tasks in stages, one stage after the other."""
    defaults: TaskDefaults = TaskDefaults()
    """What tasks have that say nothing else."""
    vars: Annotated[dict[str, Scalar | None], AfterValidator(_names)] = Field(default={})
    """Values of `{{NAME}}` in the texts of tasks; `--var NAME=VALUE` overrides them. One that is
    `null` must be given so."""
    continue_on_error: bool = False
    """A stage starts although tasks of the stage before failed."""
    complexity: AtOneTime = AtOneTime()
    """How many tasks of each complexity run at one time: `{high: 1, medium: 2, low: 10}`."""
    policy: Policy = Policy()
    """What holds for the workflow as a whole."""

    @model_validator(mode="after")
    def _some_task(self) -> "Manifest":
        if not self.tasks and not any(stage.tasks for stage in self.stages):
            raise ValueError("it has no task: `tasks` or `stages` must list some")
        return self
