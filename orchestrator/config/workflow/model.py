"""A workflow that is ready to run: templates are filled in, and all file formats look the same."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_serializer, model_validator

from orchestrator.config.settings.container import Keys, Limits, Network
from orchestrator.config.settings.project import Checks, Services
from orchestrator.config.settings.values import (
    LONGEST,
    Commands,
    Count,
    Model,
    Ports,
    Seconds,
    Usd,
    with_unix_lines,
)

MOST_TASKS = 1000
"""Maximum number of tasks of a workflow, with all tasks that a `foreach` creates."""
WHEN = Literal["on_success", "on_failure", "always"]
COMPLEXITY = Literal["low", "medium", "high"]


def _prompt(text: str) -> str:
    if not text.strip():
        raise ValueError("a task must not be empty")
    if "\0" in text:
        raise ValueError("a task must not contain NUL")
    return with_unix_lines(text)


TaskId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Prompt = Annotated[str, AfterValidator(_prompt)]
Lock = Annotated[str, Field(min_length=1, max_length=100)]
Patterns = tuple[Annotated[str, Field(min_length=1)], ...]
"""Path patterns, as `orchestrator.base.text.path_patterns` defines them."""


class WorkerSettings(Model):
    """Settings that one task may have instead of those of the run; None: same as the run."""

    agent: str | None = Field(default=None, min_length=1)
    """Profile, such as `build`, to select in the agent program."""
    agent_cli: str | None = Field(default=None, min_length=1)
    """Agent program that performs the task, such as `claude`."""
    model: str | None = Field(default=None, min_length=1)
    """Model that performs the task."""
    image: str | None = Field(default=None, min_length=1)
    """Container image in which the task runs."""
    max_steps: Count | None = None
    """Maximum number of an agent's steps: model answers or tool calls, depending on the agent."""
    budget: Usd | None = None
    """Maximum cost of the task in USD."""
    timeout: Seconds | None = None
    """Maximum number of seconds that the task may run; 0 disables the limit."""
    retries: int | None = Field(default=None, ge=0, le=10)
    """Number of times that the task is started again after a temporary failure."""
    retry_delay: Seconds | None = None
    """Seconds between a failure and the retry."""
    limits: Limits = Limits()
    """Limits that override those of the run; other limits are the run's."""
    network: Network | None = None
    """Network of the task: `none`, `allowlist`, `learn` or `open`."""
    allow: tuple[str, ...] | None = None
    """Hosts that the task may reach, instead of those of the run; same syntax as `allow` in a
    configuration file.
    """
    keys: Keys | None = None
    """Where the API keys of models are: `env` or `broker`."""
    ports: Ports | None = None
    """Ports of the container to publish on 127.0.0.1 of this machine."""
    services: Services | None = None
    """Services (such as databases) that run with the task, instead of those of the run."""
    setup: Commands | None = None
    """Commands that prepare the worktree before the agent starts, instead of those of the run."""
    checks: Checks | None = None
    """Commands that the task's commit must pass, instead of those of the run."""
    paths: Patterns | None = None
    """Paths that the task may change, as patterns like in `.gitignore`: `src`, `docs/*.md`. A task
    that changes other files is `partial` with the reason `out_of_scope`.
    """
    enforce: Literal["ro"] | None = None
    """`ro`: everything in the worktree outside `paths` is mounted read-only, and each path must be
    a directory from the repository's top, without wildcards."""

    @field_serializer("limits")
    def _only_given(self, limits: Limits) -> dict[str, object]:
        # A limit that is read again counts as given, and would override that of the run.
        # protection: limits-of-run-hold-for-tasks-of-recorded-workflow
        return limits.model_dump(mode="json", exclude_unset=True)


class Earlier(Model):
    """A task that an earlier run completed and that is not run again."""

    task: TaskId
    """Id of the task."""
    run_id: str
    """Id of the earlier run."""
    worker_id: int
    """Number of the task's worker in the earlier run."""
    digest: str = ""
    """Hash of what the task does: see `orchestrator.config.workflow.contents`."""


class Task(Model):
    """One task of a workflow, performed by a worker in its own worktree, branch and container."""

    id: TaskId
    """Name of the task, by which other tasks refer to it."""
    task: Prompt
    """Prompt or command of the task. May contain `{{results}}`: see `Task.results_at`."""
    depends_on: tuple[TaskId, ...] = ()
    """Tasks that must end before this task starts. The task starts from their merged branches."""
    inputs: tuple[TaskId, ...] = ()
    """Tasks whose results, summaries and diffs this task gets as files, because it combines them.
    """
    results_at: tuple[int, ...] = ()
    r"""Which occurrences of `{{results}}` in `task`, counted from 0, are replaced by the results of
    `inputs`. Other occurrences are plain text, because they are escaped as `\{{results}}` or come
    from a variable.
    """
    earlier: tuple[Earlier, ...] = ()
    """Dependencies of the task that an earlier run completed."""
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
    """Id of the `foreach` task that this task was created from."""
    digest: str = ""
    """Hash of what the task does: see `orchestrator.config.workflow.contents`. Empty if not
    calculated.
    """
    settings: WorkerSettings = WorkerSettings()


class AtOneTime(Model):
    """Maximum numbers of tasks of each complexity that run at the same time."""

    high: int = Field(default=1, ge=1, le=1000)
    """Maximum number of simultaneous tasks with `complexity: high`. With the default of 1, no other
    task that has a `complexity` runs at the same time.
    """
    medium: int = Field(default=2, ge=1, le=1000)
    """Maximum number of simultaneous tasks with `complexity: medium`."""
    low: int = Field(default=10, ge=1, le=1000)
    """Maximum number of simultaneous tasks with `complexity: low`."""

    def share(self, complexity: COMPLEXITY | None) -> Fraction:
        """Return a task's share of the capacity; all running tasks together take at most 1."""
        if complexity is None:
            return Fraction(0)
        return Fraction(1, {"high": self.high, "medium": self.medium, "low": self.low}[complexity])


class Workflow(Model):
    """A list of tasks, each after its dependencies; otherwise in the order of the file."""

    name: str = Field(min_length=1, max_length=200)
    tasks: tuple[Task, ...] = Field(min_length=1, max_length=MOST_TASKS)
    max_latency: float | None = Field(default=None, gt=0, le=LONGEST)
    """Seconds that a task may take; if a task took longer, a notice is printed when it ends."""
    network: Network | None = None
    """Network of all tasks, setup and check commands: `none` if the workflow is private."""
    complexity: AtOneTime = AtOneTime()
    """Maximum numbers of tasks of each complexity that run at the same time."""
    done: tuple[Earlier, ...] = ()
    """Tasks that earlier runs completed, so that this run leaves them out."""

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
        """Return the tasks by id."""
        return {task.id: task for task in self.tasks}

    def waves(self) -> Iterator[tuple[Task, ...]]:
        """Yield groups of tasks that could run at the same time on a large enough machine."""
        depth: dict[str, int] = {}
        for task in self.tasks:
            depth[task.id] = 1 + max((depth[other] for other in task.depends_on), default=-1)
        for level in range(max(depth.values()) + 1):
            yield tuple(task for task in self.tasks if depth[task.id] == level)
