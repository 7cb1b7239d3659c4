"""A workflow ready to run: templates are expanded and all dialects are unified."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from orchestrator.config.container import Keys, Limits, Network
from orchestrator.config.project import Checks, Services
from orchestrator.config.values import Commands, Model, Ports

MOST_TASKS = 1000
"""Maximum number of tasks of a workflow, counting every batch of a `foreach`."""
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
"""Path patterns, as `orchestrator.text.path_patterns` defines them."""


class WorkerSettings(Model):
    """Settings of one task that override those of the run; None: same as the run."""

    agent: str | None = Field(default=None, min_length=1)
    """Profile passed to the agent program."""
    agent_cli: str | None = Field(default=None, min_length=1)
    """Agent program of the task."""
    model: str | None = Field(default=None, min_length=1)
    """Model of the task."""
    image: str | None = Field(default=None, min_length=1)
    """Container image of the task."""
    max_steps: int | None = Field(default=None, ge=1)
    """Maximum number of steps of the agent."""
    budget: float | None = Field(default=None, gt=0)
    """Budget of the task in USD."""
    timeout: float | None = Field(default=None, ge=0)
    """Seconds that the task may run; 0 disables the limit."""
    retries: int | None = Field(default=None, ge=0, le=10)
    """Number of times that the task is started again after a temporary failure."""
    retry_delay: float | None = Field(default=None, ge=0)
    """Seconds between a failure and the retry."""
    limits: Limits = Limits()
    """Limits that override those of the run; other limits are the run's."""
    network: Network | None = None
    """Network of the task: `none`, `allowlist`, `learn` or `open`."""
    allow: tuple[str, ...] | None = None
    """Hosts that the task may reach, instead of the run's: as `allow` in a configuration file."""
    keys: Keys | None = None
    """Where the API keys of models are: `env` or `broker`."""
    ports: Ports | None = None
    """Container ports to publish on 127.0.0.1."""
    services: Services | None = None
    """Service containers of the task, instead of the run's."""
    setup: Commands | None = None
    """Commands that prepare the worktree before the agent starts, instead of the run's."""
    checks: Checks | None = None
    """Commands that the task's commit must pass, instead of the run's."""
    paths: Patterns | None = None
    """Paths that the task may change, as in `.gitignore`: `src`, `docs/*.md`. A task that changes
    other files is `partial` with the reason `out_of_scope`."""
    enforce: Literal["ro"] | None = None
    """`ro`: everything in the worktree outside `paths` is mounted read-only, and each path must be
    a directory from the repository's top, without wildcards."""


class Earlier(Model):
    """A task that an earlier run completed."""

    task: TaskId
    """Id of the task."""
    run_id: str
    """Id of the earlier run."""
    worker_id: int
    """Number of the task's worker in the earlier run."""
    digest: str = ""
    """Digest of the task's work: see `orchestrator.workflow.contents`."""


class Task(Model):
    """One task, run by a worker with its own worktree, branch and container."""

    id: TaskId
    """Name of the task, by which other tasks refer to it."""
    task: Prompt
    """Prompt of the task. May contain `{{results}}`: see `Task.results_at`."""
    depends_on: tuple[TaskId, ...] = ()
    """Tasks that must end before this task starts. It starts from their merged branches."""
    inputs: tuple[TaskId, ...] = ()
    """Tasks whose results, summaries and diffs this task gets as files: those it reduces."""
    results_at: tuple[int, ...] = ()
    """Which occurrences of `{{results}}` in `task`, counted from 0, are replaced by the results of
    `inputs`. Other occurrences are plain text: escaped as `\\{{results}}`, or from a variable."""
    earlier: tuple[Earlier, ...] = ()
    """Dependencies that an earlier run completed."""
    when: WHEN = "on_success"
    """When the task runs. `on_success`: if all its dependencies succeeded. `on_failure`: if at
    least one of them failed. `always`: in both cases."""
    critical: bool | None = None
    """`true`: if the task fails, no further tasks start. `false`: if the task fails, the run can
    still succeed. Default: if the task fails, its dependents are skipped, other tasks run, and the
    run fails."""
    parallel: bool = True
    """`false`: the task runs alone; no other task runs at the same time."""
    resources: tuple[Lock, ...] = ()
    """Locks of the task: tasks that share a lock never run at the same time."""
    touches: Patterns = ()
    """Paths that the task is expected to change; used only for warnings of `spec validate`."""
    complexity: COMPLEXITY | None = None
    """Complexity of the task. By default, one task of `high` complexity runs at a time, two of
    `medium` or ten of `low`; the workflow's `complexity` changes these numbers."""
    mode: Literal["rw", "ro"] | None = None
    """`ro`: the task's worktree is read-only, and its answer is its result. `rw`: the worktree is
    writable; refused if the run is read-only. Default: same as the run."""
    group: TaskId | None = None
    """The `foreach` task that this task is a batch of."""
    digest: str = ""
    """Digest of the task's work: see `orchestrator.workflow.contents`. Empty: not calculated."""
    settings: WorkerSettings = WorkerSettings()


class AtOneTime(Model):
    """Numbers of tasks of each complexity that may run at the same time."""

    high: int = Field(default=1, ge=1, le=1000)
    """Tasks of `complexity: high`. With the default, no other task with a complexity runs beside
    one."""
    medium: int = Field(default=2, ge=1, le=1000)
    """Tasks of `complexity: medium`."""
    low: int = Field(default=10, ge=1, le=1000)
    """Tasks of `complexity: low`."""

    def share(self, complexity: COMPLEXITY | None) -> Fraction:
        """Return the fraction of the machine that a task takes; running tasks take at most 1."""
        if complexity is None:
            return Fraction(0)
        return Fraction(1, {"high": self.high, "medium": self.medium, "low": self.low}[complexity])


class Workflow(Model):
    """A list of tasks in topological order; otherwise, the order of the manifest is kept."""

    name: str = Field(min_length=1, max_length=200)
    tasks: tuple[Task, ...] = Field(min_length=1, max_length=MOST_TASKS)
    max_latency: float | None = Field(default=None, gt=0)
    """Seconds after which a warning about a task is printed."""
    network: Network | None = None
    """`none`: a policy that denies a network to all tasks, setup and check commands."""
    complexity: AtOneTime = AtOneTime()
    """How many tasks of each complexity may run at the same time."""
    done: tuple[Earlier, ...] = ()
    """Tasks that earlier runs completed, and that this run leaves out."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        known: set[str] = set()
        for task in self.tasks:
            if task.id in known:
                raise ValueError(f"task `{task.id}` is defined twice")
            before = {*task.depends_on, *(earlier.task for earlier in task.earlier)}
            if not {*task.depends_on} <= known or not {*task.inputs} <= before:
                raise ValueError(f"task `{task.id}` depends on a task that does not come before it")
            known.add(task.id)
        return self

    def __getitem__(self, task_id: str) -> Task:
        return self.by_id[task_id]

    @property
    def by_id(self) -> Mapping[str, Task]:
        """The tasks by id."""
        return {task.id: task for task in self.tasks}

    def waves(self) -> Iterator[tuple[Task, ...]]:
        """Yield groups of tasks that could run at the same time if there were slots for all."""
        depth: dict[str, int] = {}
        for task in self.tasks:
            depth[task.id] = 1 + max((depth[other] for other in task.depends_on), default=-1)
        for level in range(max(depth.values()) + 1):
            yield tuple(task for task in self.tasks if depth[task.id] == level)
