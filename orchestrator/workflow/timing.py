"""How well a run used its time: against one worker after the other, and what held it up."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.results import WorkerResult
from orchestrator.workflow.model import Workflow


class Summary(BaseModel):
    """Seconds are those of the workers' containers."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    sequential: float = Field(ge=0)
    """Seconds of all workers together."""
    wall: float = Field(ge=0)
    """Seconds of the run."""
    speedup: float = Field(ge=0)
    """`sequential` divided by `wall`."""
    slots: int = Field(ge=1)
    """How many workers could run at one time."""
    utilisation: float = Field(ge=0, le=1)
    """How much of the slots was used, from 0 to 1."""
    widest: int = Field(ge=0)
    """The most workers that ran at one time."""
    critical_path: tuple[str, ...] = ()
    """Tasks that waited for each other and took longest: no number of slots is faster. Empty
    without a workflow."""
    critical_seconds: float = Field(default=0.0, ge=0)
    """What these took."""


def summarise(
    results: Sequence[WorkerResult], *, wall: float, slots: int, workflow: Workflow | None = None
) -> Summary:
    """Return how well a run used its time.

    Args:
        results: Of its workers; one that never started took no time.
        wall: Seconds of the run.
        slots: How many workers could run at one time.
        workflow: Whose tasks the results name.
    """
    ran = [result for result in results if result.started_at is not None]
    busy = sum(result.duration for result in ran)
    slots = max(min(slots, len(results)), 1)
    path = _critical(workflow, ran) if workflow else ()
    seconds = _seconds(ran)
    return Summary(
        sequential=round(busy, 3),
        wall=round(wall, 3),
        speedup=round(busy / wall, 2) if wall else 0.0,
        slots=slots,
        utilisation=round(min(busy / (slots * wall), 1.0), 3) if wall else 0.0,
        widest=_widest(ran),
        critical_path=path,
        critical_seconds=round(sum(seconds[name] for name in path), 3),
    )


def _seconds(ran: Sequence[WorkerResult]) -> dict[str, float]:
    return {result.name: result.duration for result in ran if result.name is not None}


def _critical(workflow: Workflow, ran: Sequence[WorkerResult]) -> tuple[str, ...]:
    seconds = _seconds(ran)
    longest: dict[str, float] = {}
    before: dict[str, str | None] = {}
    for task in workflow.tasks:
        last = max(task.depends_on, key=longest.__getitem__, default=None)
        before[task.id] = last
        longest[task.id] = seconds.get(task.id, 0.0) + (longest[last] if last else 0.0)
    return _way(max(longest, key=longest.__getitem__), before, seconds)


def _way(
    last: str | None, before: Mapping[str, str | None], seconds: Mapping[str, float]
) -> tuple[str, ...]:
    found: list[str] = []
    while last is not None:
        found += [last] if last in seconds else []
        last = before[last]
    return tuple(reversed(found))


def _widest(ran: Sequence[WorkerResult]) -> int:
    """Count the most that ran at one time: one that begins as another ends is not beside it."""
    moments = []
    for result in ran:
        if result.started_at is not None:
            end = result.started_at + timedelta(seconds=result.duration)
            moments += [(result.started_at, 1), (end, -1)]
    running = widest = 0
    for _, change in sorted(moments):
        running += change
        widest = max(widest, running)
    return widest
