"""A workflow as it is carried out: every dialect and template read, nothing left to guess."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from orchestrator.config.container import Limits, Network
from orchestrator.config.project import Checks, Services
from orchestrator.config.values import Commands, Model, Ports

MOST_TASKS = 1000
"""Of one workflow, every batch of a `foreach` counted."""
WHEN = Literal["on_success", "on_failure", "always"]
COMPLEXITY = Literal["low", "medium", "high"]


def _prompt(text: str) -> str:
    if not text.strip():
        raise ValueError("a task must not be empty")
    if "\0" in text:
        raise ValueError("a task must not contain NUL")
    return text


TaskId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Prompt = Annotated[str, AfterValidator(_prompt)]
Lock = Annotated[str, Field(min_length=1, max_length=100)]
Patterns = tuple[Annotated[str, Field(min_length=1)], ...]
"""Patterns of paths: see `orchestrator.text.path_patterns`."""


class WorkerSettings(Model):
    """What one task has otherwise than the run; None is as the run has it."""

    agent: str | None = Field(default=None, min_length=1)
    """The profile given to the agent program."""
    agent_cli: str | None = Field(default=None, min_length=1)
    """The agent program."""
    model: str | None = Field(default=None, min_length=1)
    """Its model."""
    image: str | None = Field(default=None, min_length=1)
    """Container image."""
    max_steps: int | None = Field(default=None, ge=1)
    """Steps an agent may take."""
    budget: float | None = Field(default=None, gt=0)
    """USD."""
    timeout: float | None = Field(default=None, ge=0)
    """Seconds; 0 is none."""
    retries: int | None = Field(default=None, ge=0, le=10)
    """How often it is started again when it failed, for reasons that may pass."""
    retry_delay: float | None = Field(default=None, ge=0)
    """Seconds before that."""
    limits: Limits = Limits()
    """Only what is given here is otherwise than the run has it."""
    network: Network | None = None
    """`none` or `open`."""
    ports: Ports | None = None
    """Container ports published on 127.0.0.1."""
    services: Services | None = None
    """Programs beside it, instead of the run's."""
    setup: Commands | None = None
    """Commands before the agent, instead of the run's."""
    checks: Checks | None = None
    """Commands that its commit must pass, instead of the run's."""
    paths: Patterns | None = None
    """Where it is to make changes: `src`, `docs/*.md`, as in a `.gitignore`. Changes elsewhere make
    it `partial` (`out_of_scope`)."""
    enforce: Literal["ro"] | None = None
    """`ro`: everything in the worktree outside `paths` is mounted read-only. Each path must then be
    a directory from the repository's top, without wildcards."""


class Earlier(Model):
    """A task that an earlier run has done."""

    task: TaskId
    """Its id."""
    run_id: str
    """The run."""
    worker_id: int
    """Its worker there."""
    digest: str = ""
    """See `orchestrator.workflow.contents`."""


class Task(Model):
    """One task: one worker with a worktree, a branch and a container of its own."""

    id: TaskId
    """What others depend on it by."""
    task: Prompt
    """What its agent is asked to do. May hold `{{results}}`: see `Task.results_at`."""
    depends_on: tuple[TaskId, ...] = ()
    """Tasks that must be over before it starts, and from whose merged branches it starts."""
    inputs: tuple[TaskId, ...] = ()
    """Tasks whose results, summaries and diffs it is given as files: those it reduces."""
    results_at: tuple[int, ...] = ()
    """Which `{{results}}` of `task`, counted from 0, stand for what came of the inputs; others are
    plain text, written as `\\{{results}}` or come with the value of a variable."""
    earlier: tuple[Earlier, ...] = ()
    """Tasks that it depends on which are not of this run: an earlier one has done them."""
    when: WHEN = "on_success"
    """`on_success`: it runs if all it depends on succeeded. `on_failure`: if one of them did not.
    `always`: however they ended."""
    critical: bool | None = None
    """`true`: when it fails, no further task starts. `false`: its failure does not make the run
    fail. Default: tasks that depend on it are skipped, all others go on, and the run has failed."""
    parallel: bool = True
    """`false`: no other task runs beside it."""
    resources: tuple[Lock, ...] = ()
    """Names of what it needs for itself: no two tasks that name the same run at one time."""
    touches: Patterns = ()
    """Where it is expected to make changes, for warnings of `spec validate` alone."""
    complexity: COMPLEXITY | None = None
    """How demanding it is. `high` runs beside no other task that says so, of `medium` two run at
    one time, of `low` ten, unless `complexity` of the workflow says otherwise."""
    mode: Literal["rw", "ro"] | None = None
    """`ro`: the task cannot write to its worktree, and answers with what it says. `rw`: it can,
    and is refused where the run is read-only. Default: as the run."""
    group: TaskId | None = None
    """The `foreach` that it is a batch of."""
    digest: str = ""
    """What it does: see `orchestrator.workflow.contents`. Empty: not worked out."""
    settings: WorkerSettings = WorkerSettings()


class AtOneTime(Model):
    """How many tasks of each complexity run at one time."""

    high: int = Field(default=1, ge=1, le=1000)
    """Of `complexity: high`; the default runs beside no other that has a complexity."""
    medium: int = Field(default=2, ge=1, le=1000)
    """Of `complexity: medium`."""
    low: int = Field(default=10, ge=1, le=1000)
    """Of `complexity: low`."""

    def share(self, complexity: COMPLEXITY | None) -> Fraction:
        """Return the share of the whole that a task takes; shares of different kinds add up."""
        if complexity is None:
            return Fraction(0)
        return Fraction(1, {"high": self.high, "medium": self.medium, "low": self.low}[complexity])


class Workflow(Model):
    """Tasks, each after those it depends on: as in the manifest where that leaves a choice."""

    name: str = Field(min_length=1, max_length=200)
    tasks: tuple[Task, ...] = Field(min_length=1, max_length=MOST_TASKS)
    max_latency: float | None = Field(default=None, gt=0)
    """Seconds of a task that people are warned beyond."""
    network: Network | None = None
    """`none` is a policy: no task, setup or check has a network, whatever else asks for one."""
    complexity: AtOneTime = AtOneTime()
    """How many tasks of each complexity run at one time."""
    done: tuple[Earlier, ...] = ()
    """Tasks of the whole workflow that earlier runs have done, and this one leaves out."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        known: set[str] = set()
        for task in self.tasks:
            if task.id in known:
                raise ValueError(f"task `{task.id}` is there twice")
            before = {*task.depends_on, *(one.task for one in task.earlier)}
            if not {*task.depends_on} <= known or not {*task.inputs} <= before:
                raise ValueError(f"task `{task.id}` depends on what does not come before it")
            known.add(task.id)
        return self

    def __getitem__(self, task_id: str) -> Task:
        return self.by_id[task_id]

    @property
    def by_id(self) -> Mapping[str, Task]:
        """Its tasks by their ids."""
        return {task.id: task for task in self.tasks}

    def waves(self) -> Iterator[tuple[Task, ...]]:
        """Yield the tasks that could run at one time, were there slots for all."""
        depth: dict[str, int] = {}
        for task in self.tasks:
            depth[task.id] = 1 + max((depth[other] for other in task.depends_on), default=-1)
        for level in range(max(depth.values()) + 1):
            yield tuple(task for task in self.tasks if depth[task.id] == level)
