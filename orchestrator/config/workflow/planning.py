"""Plan the workers of a run: their tasks, models and settings, and check the settings."""

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from orchestrator.base.errors import ConfigError
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.derived import with_changes, with_isolation
from orchestrator.config.fields import (
    CONTAINER_FIELDS,
    PROJECT_FIELDS,
    RUN_FIELDS,
    TRIGGER_FIELDS,
    FieldPath,
)
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.sizing import Demand, demand
from orchestrator.config.workflow.model import Task, Workflow


def job_count(config: ParallelConfig) -> int:
    """Return how many workers a run starts in all, at least one for each task and each model."""
    return max(config.workers, len(config.tasks), len(config.models))


def plan_workers(config: ParallelConfig, *, first: int = 1) -> tuple[WorkerSpec, ...]:
    """Return the workers of a run with their tasks and models."""
    count = job_count(config)
    tasks = chain(config.tasks, repeat(config.tasks[0]))
    models = chain(config.models, repeat(config.model))
    numbers = range(first, first + count)
    return tuple(
        WorkerSpec(worker_id=number, task=task, model=model)
        for number, task, model in zip(numbers, tasks, models, strict=False)
    )


def notice_of_repetition(config: ParallelConfig, *, workers_given: bool) -> str | None:
    """Return a notice if the first task runs several times although the user did not ask for that.

    Args:
        config: The run's configuration.
        workers_given: Whether the user set the number of workers.
    """
    listed = max(len(config.tasks), len(config.models))
    repeated = job_count(config) - len(config.tasks)
    models_ask_for_it = len(config.models) >= config.workers
    if workers_given or repeated <= 0 or models_ask_for_it:
        return None
    return (
        f"the first task runs {repeated + 1} times because `--workers` defaults to "
        f"{config.workers}; use `--workers {listed}` to run each task once"
    )


def run_config(config: ParallelConfig, workflow: Workflow) -> ParallelConfig:
    """Return the run's settings for a workflow: its tasks, with one worker each, and its policy."""
    # With `auto`, the machine's capacity is checked for each task when it could start.
    most = config.max_workers if config.auto_workers else config.workers
    workers = min(most, len(workflow.tasks))
    tasks = tuple(task.task for task in workflow.tasks)
    # protection: private-workflow-closes-every-network
    if workflow.network == "none":
        config = with_isolation(config, network="none", setup_network="none", check_network="none")
    return with_changes(config, tasks=tasks, models=(), workers=workers)


Programs = Mapping[str, ParallelConfig]
"""Settings of the run for tasks that use another agent program, by the program's name."""


NO_PROGRAMS: Programs = {}


OF_A_PROGRAM = (
    *("model", "agent", "max_steps", "budget_per_worker", "timeout_per_worker"),
    *("image", "api_base"),
)
"""Keys that `agents.NAME` may set for an agent program in the configuration file, besides `env`."""


TASK_KEYS: Mapping[FieldPath, str] = {
    **{RUN_FIELDS[name]: name for name in ("agent", "agent_cli", "model", "image", "max_steps")},
    **{RUN_FIELDS[name]: name for name in ("retries", "retry_delay")},
    **{RUN_FIELDS[f"{name}_per_worker"]: name for name in ("budget", "timeout")},
    **{("limits", name): f"limits.{name}" for name in Limits.model_fields},
    **{CONTAINER_FIELDS[name]: name for name in ("network", "allow", "keys", "ports")},
    CONTAINER_FIELDS["read_only"]: "mode",
    **{PROJECT_FIELDS[name]: name for name in ("services", "setup", "checks")},
    **{TRIGGER_FIELDS[name]: name for name in ("paths", "enforce")},
}
"""Settings that a task can have of its own, with the task's key."""


def plan_tasks(
    config: ParallelConfig,
    workflow: Workflow | None,
    *,
    programs: Programs = NO_PROGRAMS,
    first: int = 1,
) -> tuple[WorkerSpec, ...]:
    """Return the workers of a run with their tasks, models and names.

    Args:
        config: The run's configuration; with a workflow, the result of `run_config`.
        workflow: The workflow, if the run executes one.
        programs: Configurations for tasks with other agent programs.
        first: Number of the first worker.
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
    """Return the settings of one task: the task's own settings, and else the settings of the run.

    Args:
        config: The run's configuration.
        task: The task.
        programs: Configurations for tasks with other agent programs.
    """
    own = task.settings
    if (program := programs.get(own.agent_cli or "")) is not None:
        of_program: dict[str, object] = {name: getattr(program, name) for name in OF_A_PROGRAM}
        own_env = with_isolation(config, env=program.isolation.env)
        config = own_env.model_copy(update=of_program)
    update = _without_none(
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
        "isolation": _without_none(
            network=own.network,
            allow=own.allow,
            keys=own.keys,
            ports=own.ports,
            read_only=task.mode == "ro" or None,
        ),
        "project": _without_none(services=own.services, setup=own.setup, checks=own.checks),
        "triggers": _without_none(paths=own.paths, enforce=own.enforce),
    }
    # Commands in a workflow are trusted: the user named the workflow's file.
    update["closed_stages"] = tuple(
        stage for stage in config.closed_stages if stage not in parts["project"]
    )
    for name, values in parts.items():
        if values:
            update[name] = getattr(config, name).model_copy(update=values)
    return config.model_copy(update={**update, "tasks": (task.task,), "models": ()})


def same_work(config: ParallelConfig, other: ParallelConfig) -> bool:
    """Return whether two settings of a task let it do the same work.

    Variables of services are left out, because records do not have them.
    """
    return _work(config) == _work(other)


def _work(config: ParallelConfig) -> list[object]:
    project, triggers = config.project, config.triggers
    services = {
        name: service.model_dump(exclude={"env", "variables"})
        for name, service in project.services.items()
    }
    return [
        *(config.agent, config.agent_cli, config.model, config.image),
        *(project.setup, project.checks, services, triggers.paths, triggers.enforce),
    ]


def distinct_settings(
    config: ParallelConfig, workflow: Workflow, programs: Programs
) -> list[tuple[ParallelConfig, list[Task]]]:
    """Return all different settings of tasks, each with the tasks that have them."""
    found: dict[str, tuple[ParallelConfig, list[Task]]] = {}
    for task in workflow.tasks:
        own = config_of(config, task, programs)
        key = with_changes(own, tasks=("-",)).model_dump_json()
        found.setdefault(key, (own, []))[1].append(task)
    return list(found.values())


def demand_of(
    config: ParallelConfig, task: Task, programs: Programs = NO_PROGRAMS, *, cpus: float
) -> Demand:
    """Return the CPUs and memory that are reserved for the worker of a task.

    With a chosen number of workers, only memory that the task itself sets is reserved: that many
    workers run at once, because sharing CPUs is harmless.
    """
    own = config_of(config, task, programs)
    if config.auto_workers:
        return demand(own, cpus=cpus)
    asked = task.settings.limits.model_fields_set
    return Demand(0.0, own.limits.memory if "memory" in asked else 0)


def _without_none(**values: Any) -> dict[str, Any]:  # noqa: ANN401
    return {name: value for name, value in values.items() if value is not None}


def check_modes(config: ParallelConfig, workflow: Workflow) -> None:
    """Refuse a workflow with tasks that write, if the run is read-only.

    Raises:
        ConfigError: The `mode` of a task is `rw`.
    """
    writers = [task.id for task in workflow.tasks if task.mode == "rw"]
    if config.isolation.read_only and writers:
        raise ConfigError(
            f"task `{writers[0]}`: `mode` is `rw`, but the run is read-only",
            key="task.mode",
            hint="remove `mode`, or run without `read_only`",
        )


def check_results(config: ParallelConfig, tasks: Sequence[Task]) -> None:
    """Refuse shell commands that would contain results of other workers as text.

    Raises:
        ConfigError: A shell would execute text that other workers wrote.
    """
    for task in tasks:
        # protection: no-results-in-command
        if config.agent_cli == "shell" and task.results_at:
            raise ConfigError(
                f"task `{task.id}` is a command with `{{{{results}}}}`: a shell would "
                "execute what other workers printed",
                key="task.results-in-command",
                hint="let the command read the results from the file `$ORCHESTRATOR_RESULTS`",
            )


def merges(workflow: Workflow) -> bool:
    """Return whether any task depends on several other tasks, whose results must be merged."""
    return any(len(task.depends_on) + len(task.earlier) > 1 for task in workflow.tasks)
