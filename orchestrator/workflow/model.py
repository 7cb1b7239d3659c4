"""A workflow as it is carried out: every dialect and template read, nothing left to guess."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from orchestrator.config import (
    Checks,
    Commands,
    Limits,
    Model,
    Network,
    ParallelConfig,
    Ports,
    Services,
)
from orchestrator.plan import Demand, WorkerSpec, demand, plan_workers

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
"""Patterns of paths: see `orchestrator.patterns`."""


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
        """Give the tasks that could run at one time, were there slots for all."""
        depth: dict[str, int] = {}
        for task in self.tasks:
            depth[task.id] = 1 + max((depth[other] for other in task.depends_on), default=-1)
        for level in range(max(depth.values()) + 1):
            yield tuple(task for task in self.tasks if depth[task.id] == level)


def run_config(config: ParallelConfig, workflow: Workflow) -> ParallelConfig:
    """Return a run's settings with a workflow's tasks, a worker for each, and with its policy."""
    # How many the machine has room for depends on each task: they are let in one by one.
    most = config.max_workers if config.auto_workers else config.workers
    workers = min(most, len(workflow.tasks))
    tasks = tuple(task.task for task in workflow.tasks)
    update: dict[str, object] = {"tasks": tasks, "models": (), "workers": workers}
    if workflow.network == "none":
        closed = dict.fromkeys(("network", "setup_network", "check_network"), "none")
        update["isolation"] = config.isolation.model_copy(update=closed)
    return config.model_copy(update=update)


Programs = Mapping[str, ParallelConfig]
"""The run's wishes as they are for other agent programs than its own."""
NO_PROGRAMS: Programs = {}
OF_A_PROGRAM = (
    *("model", "agent", "max_steps", "budget_per_worker", "timeout_per_worker"),
    *("image", "api_base"),
)
"""What `agents.NAME` in the configuration file can say, `env` aside."""


def plan_tasks(
    config: ParallelConfig,
    workflow: Workflow | None,
    *,
    programs: Programs = NO_PROGRAMS,
    first: int = 1,
) -> tuple[WorkerSpec, ...]:
    """Give every worker its task and model; those of a workflow its task's name too.

    Args:
        config: The run, as `run_config` gives it where there is a workflow.
        workflow: The tasks, if they are of one.
        programs: Wishes for tasks with an agent program of their own.
        first: The lowest worker number.
    """
    workers = plan_workers(config, first=first)
    if workflow is None:
        return workers
    return tuple(
        WorkerSpec(
            worker_id=spec.worker_id,
            task=spec.task,
            model=config_of(config, task, programs).model,
            name=task.id,
            required=task.critical is not False,
        )
        for spec, task in zip(workers, workflow.tasks, strict=True)
    )


def config_of(
    config: ParallelConfig, task: Task, programs: Programs = NO_PROGRAMS
) -> ParallelConfig:
    """Give what one task's worker is to have: the run's wishes, and its own over them.

    Args:
        config: The run.
        task: The task.
        programs: The run's wishes for other agent programs than its own.
    """
    own = task.settings
    config = _of_program(config, programs.get(own.agent_cli or ""))
    update = _given(
        agent=own.agent,
        agent_cli=own.agent_cli,
        model=own.model,
        image=own.image,
        max_steps=own.max_steps,
        budget_per_worker=own.budget,
        timeout_per_worker=own.timeout,
        retries=own.retries,
        retry_delay=own.retry_delay,
    )
    limits = {name: getattr(own.limits, name) for name in own.limits.model_fields_set}
    parts = {
        "limits": limits,
        "isolation": _given(
            network=own.network, ports=own.ports, read_only=task.mode == "ro" or None
        ),
        "project": _given(services=own.services, setup=own.setup, checks=own.checks),
        "triggers": _given(paths=own.paths),
    }
    # Whoever runs a workflow named its file.
    update["closed_stages"] = tuple(
        stage for stage in config.closed_stages if stage not in parts["project"]
    )
    for name, values in parts.items():
        if values:
            update[name] = getattr(config, name).model_copy(update=values)
    return config.model_copy(update={**update, "tasks": (task.task,), "models": ()})


def demand_of(
    config: ParallelConfig, task: Task, programs: Programs = NO_PROGRAMS, *, cpus: float
) -> Demand:
    """Return what of the machine is kept for a task's worker.

    With `--workers auto` that is all it may use. Where the number of workers was chosen it is what
    the task's own limits say: what it is given by default it need not use, and processors are
    shared without harm.

    Args:
        config: The run.
        task: The task.
        programs: The run's wishes for other agent programs than its own.
        cpus: What the machine has.
    """
    own = config_of(config, task, programs)
    if config.auto_workers:
        return demand(own, cpus=cpus)
    asked = task.settings.limits.model_fields_set
    return Demand(
        (own.limits.cpus or 0.0) if "cpus" in asked else 0.0,
        own.limits.memory if "memory" in asked else 0,
    )


def _of_program(config: ParallelConfig, program: ParallelConfig | None) -> ParallelConfig:
    """Take what is said of an agent program from its own wishes."""
    if program is None:
        return config
    update = {name: getattr(program, name) for name in OF_A_PROGRAM}
    isolation = config.isolation.model_copy(update={"env": program.isolation.env})
    return config.model_copy(update={**update, "isolation": isolation})


def _given(**values: Any) -> dict[str, Any]:  # noqa: ANN401
    return {name: value for name, value in values.items() if value is not None}
