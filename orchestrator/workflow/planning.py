"""Decide which worker gets which task, with which settings."""

from collections.abc import Mapping
from itertools import chain, repeat
from typing import Any

from orchestrator.config.run import ParallelConfig
from orchestrator.config.sizing import Demand, demand
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.model import Task, Workflow


def job_count(config: ParallelConfig) -> int:
    """Count the workers of a run: none of its tasks and models is dropped."""
    return max(config.workers, len(config.tasks), len(config.models))


def plan_workers(config: ParallelConfig, *, first: int = 1) -> tuple[WorkerSpec, ...]:
    """Return every worker its task and model.

    Args:
        config: The run.
        first: The lowest worker number.
    """
    count = job_count(config)
    tasks = chain(config.tasks, repeat(config.tasks[0]))
    models = chain(config.models, repeat(config.model))
    numbers = range(first, first + count)
    return tuple(
        WorkerSpec(worker_id=number, task=task, model=model)
        for number, task, model in zip(numbers, tasks, models, strict=False)
    )


def repeated_task_notice(config: ParallelConfig, *, workers_given: bool) -> str | None:
    """Say so when nobody asked for the first task to be run again.

    Args:
        config: The run.
        workers_given: Somebody chose the number of workers; it is not the default.
    """
    listed = max(len(config.tasks), len(config.models))
    repeated = job_count(config) - len(config.tasks)
    models_ask_for_it = len(config.models) >= config.workers
    if workers_given or repeated <= 0 or models_ask_for_it:
        return None
    return (
        f"the first task is run {repeated + 1} times because `--workers` is {config.workers} "
        f"by default; `--workers {listed}` runs only what was listed"
    )


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
    """Return every worker its task and model; those of a workflow its task's name too.

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
    """Return what one task's worker is to have: the run's wishes, and its own over them.

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
        "triggers": _given(paths=own.paths, enforce=own.enforce),
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
