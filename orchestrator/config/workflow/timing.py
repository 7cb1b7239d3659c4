"""Calculate how well a run used its workers in parallel, and its critical path."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.base.results import WorkerResult
from orchestrator.config.workflow.model import Workflow


class Summary(BaseModel):
    """How much time a run took. Durations are those of the workers' containers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sequential: float = Field(ge=0)
    """Sum of the seconds that each worker ran."""
    wall: float = Field(ge=0)
    """Seconds from the start to the end of the run."""
    speedup: float = Field(ge=0)
    """`sequential` divided by `wall`."""
    slots: int = Field(ge=1)
    """Maximum number of simultaneous workers."""
    utilisation: float = Field(ge=0, le=1)
    """Share of the possible working time (`slots` times `wall`) that was used, from 0 to 1."""
    widest: int = Field(ge=0)
    """Highest number of workers that really ran at the same time."""
    critical_path: tuple[str, ...] = ()
    """Chain of tasks, each dependent on the previous one, that took longest: the run cannot be
    faster with more workers. Empty without a workflow.
    """
    critical_seconds: float = Field(default=0.0, ge=0)
    """Seconds of the tasks on the critical path."""


def summarise(
    results: Sequence[WorkerResult], *, wall: float, slots: int, workflow: Workflow | None = None
) -> Summary:
    """Calculate the timing of a run.

    Args:
        results: Results of the workers; a worker that never started counts as 0 seconds.
        wall: Seconds of the run.
        slots: Maximum number of workers at the same time.
        workflow: The workflow that the run executed.
    """
    ran = [result for result in results if result.started_at is not None]
    busy = sum(result.duration for result in ran)
    slots = max(min(slots, len(results)), 1)
    seconds = {result.name: result.duration for result in ran if result.name is not None}
    path = _critical(workflow, seconds) if workflow else ()
    moments = []
    for result in ran:
        if result.started_at is not None:
            end = result.started_at + timedelta(seconds=result.duration)
            moments += [(result.started_at, 1), (end, -1)]
    running = widest = 0
    for _, change in sorted(moments):
        running += change
        widest = max(widest, running)
    return Summary(
        sequential=round(busy, 3),
        wall=round(wall, 3),
        speedup=round(busy / wall, 2) if wall else 0.0,
        slots=slots,
        utilisation=round(min(busy / (slots * wall), 1.0), 3) if wall else 0.0,
        widest=widest,
        critical_path=path,
        critical_seconds=round(sum(seconds[name] for name in path), 3),
    )


def _critical(workflow: Workflow, seconds: Mapping[str, float]) -> tuple[str, ...]:
    longest: dict[str, float] = {}
    before: dict[str, str | None] = {}
    for task in workflow.tasks:
        last = max(task.depends_on, key=longest.__getitem__, default=None)
        before[task.id] = last
        longest[task.id] = seconds.get(task.id, 0.0) + (longest[last] if last else 0.0)
    last = max(longest, key=longest.__getitem__)
    path: list[str] = []
    while last is not None:
        path += [last] if last in seconds else []
        last = before[last]
    return tuple(reversed(path))
