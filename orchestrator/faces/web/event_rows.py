"""Convert the events of a run to rows of a table on a page."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from orchestrator.base.events import (
    Event,
    Intervention,
    Notice,
    ProviderPaused,
    RunDone,
    RunStarted,
    SlotsChanged,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
    WorkerStopping,
    WorkerWaiting,
)
from orchestrator.base.results import Status, ended_word
from orchestrator.base.text.quantities import count, short_duration
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.web.rendering import moment

MOST_ROWS = 300
"""Maximum number of events on a page."""
_LONGEST = 500


@dataclass(frozen=True)
class EventRow:
    """An event as a row of a table on a page."""

    at: str
    """Time since the start of the run."""
    iso: str
    full: str
    worker: int | None
    text: str
    tone: str


def event_rows(
    events: Iterable[Event], *, began: datetime, worker: int | None = None
) -> list[EventRow]:
    """Return the latest events as rows, newest first.

    Args:
        events: The events, in order.
        began: Start of the run.
        worker: Only events of this worker; None: all events.
    """
    shown = [event for event in events if worker is None or _worker(event) == worker]
    rows = []
    for event in reversed(shown[-MOST_ROWS:]):
        text, tone = _words(event)
        since = (event.at - began).total_seconds()
        rows.append(
            EventRow(
                at=f"+{short_duration(max(since, 0))}",
                iso=event.at.isoformat(),
                full=moment(event.at),
                worker=_worker(event),
                text=one_line(text, limit=_LONGEST),
                tone=tone,
            )
        )
    return rows


def _worker(event: Event) -> int | None:
    if isinstance(event, WorkerDone):
        return event.result.worker_id
    return getattr(event, "worker_id", None)


def _words(event: Event) -> tuple[str, str]:
    """Return the text of an event, and the tone (such as `danger`) that selects its colour."""
    match event:
        case Notice(message=message):
            return message, "idle"
        case RunStarted(workers=workers, slots=slots):
            return f"Run started: {count(len(workers), 'worker')}, {slots} at once", "active"
        case RunDone(result=result):
            return f"Run ended: {ended_word(result.status, result.results)}", _tone(result.status)
        case WorkerDone(result=result):
            said = f": {result.message}" if result.message else ""
            return f"ended: {result.outcome}{said}", _tone(result.status)
        case ProviderPaused(provider=provider, seconds=seconds):
            return f"{provider} refuses requests for {short_duration(seconds)}", "warning"
        case SlotsChanged(provider=provider, slots=slots, most=most):
            return f"{provider}: {slots} of {most} workers at once", "warning"
        case _:
            return _worker_words(event)


def _worker_words(event: Event) -> tuple[str, str]:
    match event:
        case WorkerWaiting(reason=reason):
            return f"waits: {reason}", "idle"
        case WorkerPreparing():
            return "is being prepared", "active"
        case WorkerStage(stage=stage, name=name):
            return f"{stage} {name or ''} started".replace("  ", " "), "active"
        case WorkerStageDone(stage=stage, problem=problem, duration=took, name=name):
            said = f"failed: {problem}" if problem else f"took {short_duration(took)}"
            return f"{stage} {name or ''} {said}".replace("  ", " "), (
                "danger" if problem else "success"
            )
        case WorkerStarted():
            return "started", "active"
        case Intervention(detail=detail, stops=stops):
            return f"needs attention: {detail}{'; it is stopped' if stops else ''}", "warning"
        case WorkerStopping(reason=reason):
            return f"is being stopped: {reason}", "warning"
        case WorkerHarvesting():
            return "ended; its work is being saved", "active"
        case WorkerRetrying(attempt=attempt, reason=reason, delay=delay):
            when = f"attempt {attempt} in {short_duration(delay)}"
            return f"failed ({reason.replace('_', ' ')}), {when}", "warning"
        case _:
            return event.type.replace("_", " "), "idle"


def _tone(status: Status) -> str:
    tones = {Status.SUCCESS: "success", Status.PARTIAL: "warning"}
    return tones.get(status, "danger")
