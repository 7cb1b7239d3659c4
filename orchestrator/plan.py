"""Which worker gets which task and model. Pure."""

from itertools import chain, repeat

from pydantic import BaseModel, ConfigDict

from orchestrator.config import ParallelConfig

DEFAULT_MODEL = "default"
DEFAULT_CPUS = 2.0


class WorkerSpec(BaseModel):
    """One worker's job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker_id: int
    task: str
    model: str | None
    name: str | None = None
    """The id of its task, in a workflow."""
    required: bool = True
    """Whether the run fails with it."""

    @property
    def model_name(self) -> str:
        """The model as results show it."""
        return self.model or DEFAULT_MODEL

    @property
    def directory(self) -> str:
        """The worktree's name at the repository's top level."""
        return f".architect-parallel-{self.worker_id}"

    @property
    def branch(self) -> str:
        """The worker's branch, without `refs/heads/`."""
        return f"architect/parallel-{self.worker_id}"


def whole_worker(config: ParallelConfig, *, cpus: float) -> tuple[float, int]:
    """Give CPUs and bytes of memory of a worker and its services together.

    Args:
        config: The run.
        cpus: What the machine has.
    """
    services = config.project.services.values()
    own = config.limits.cpus or min(DEFAULT_CPUS, cpus)
    memory = config.limits.memory + sum(service.memory for service in services)
    return own + sum(service.cpus for service in services), memory


def room(config: ParallelConfig, *, cpus: float, memory: int) -> int:
    """Say how many workers a machine has room for at once, each with its services.

    Args:
        config: The run.
        cpus: What the machine has.
        memory: The same, in bytes.
    """
    each, bytes_each = whole_worker(config, cpus=cpus)
    return max(1, min(config.max_workers, int(cpus / each), memory // bytes_each))


def job_count(config: ParallelConfig) -> int:
    """Count the workers of a run: none of its tasks and models is dropped."""
    return max(config.workers, len(config.tasks), len(config.models))


def plan_workers(config: ParallelConfig, *, first: int = 1) -> tuple[WorkerSpec, ...]:
    """Give every worker its task and model.

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
