"""Draw a run's time axis and the bars of its workers on a page, and the buttons that zoom."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.base.text.quantities import short_duration
from orchestrator.faces.web.summaries import badge_of
from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.states import WAITS, PhaseKind
from orchestrator.state.record.timeline import PHASE_NAMES, SHORTEST, Axis, axis_of
from orchestrator.state.record.worker_view import WorkerView

_THINNEST = 0.4
"""Minimum width of a bar in percent of the timeline, so that short phases can be seen."""
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?")
Kind = Literal["bar", "wait"]


@dataclass(frozen=True)
class Bar:
    """A phase of a worker as a rectangle."""

    x: str
    width: str
    end: str
    look: str
    """CSS class of the rectangle: the phase; for an agent's phase, the tone of the outcome."""
    kind: Kind
    title: str


@dataclass(frozen=True)
class Tick:
    """A mark on the time axis, with its label."""

    x: str
    label: str
    is_last: bool
    """Whether the mark is so close to the right end that its label must not be centred."""


@dataclass(frozen=True)
class Break:
    """A stretch of time without work that is drawn shortened."""

    x: str
    width: str
    title: str


@dataclass(frozen=True)
class Timeline:
    """The time axis of a run, or of a part of it, as templates show it."""

    axis: Axis

    @property
    def numbers(self) -> list[list[float]]:
        """Start and end in seconds, place and width in percent, of each stretch, for the script."""
        return [
            [round(number, 3) for number in (part.start, part.end, part.x, part.width)]
            for part in self.axis.stretches
        ]

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The stretches without work that are drawn shortened."""
        return tuple(
            Break(
                f"{part.x:.3f}%", f"{part.width:.3f}%", f"{short_duration(part.seconds)} of waiting"
            )
            for part in self.axis.stretches
            if part.is_idle
        )

    @property
    def idle(self) -> str:
        """Total length of the shortened stretches, as text; empty if there are none."""
        seconds = sum(part.seconds for part in self.axis.stretches if part.is_idle)
        return short_duration(seconds) if seconds else ""

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """The marks on the time axis, with their labels."""
        return tuple(Tick(f"{x:.3f}%", label, x > 94) for x, label in self.axis.ticks)

    def bars(self, worker: WorkerView) -> Iterator[Bar]:
        """Yield the bars of a worker, one for each phase that is in the shown time."""
        axis = self.axis
        agents = [phase for phase in worker.phases if phase.kind is PhaseKind.AGENT]
        latest = agents[-1] if agents else None
        for phase in worker.phases:
            start = (phase.start - axis.run.started_at).total_seconds()
            if start + phase.seconds >= axis.start and start <= axis.end:
                x = min(axis.place(phase.start), 100 - _THINNEST)
                width = min(max(axis.place(phase.end) - x, _THINNEST), 100 - x)
                attempt = f", attempt {phase.attempt}" if worker.phases[-1].attempt > 1 else ""
                look: str = phase.kind.value
                if phase.kind is PhaseKind.AGENT:
                    look = badge_of(worker.word).tone if phase is latest else "danger"
                yield Bar(
                    x=f"{x:.3f}%",
                    width=f"{width:.3f}%",
                    end=f"{x + width:.3f}%",
                    look=look,
                    kind="wait" if phase.kind in WAITS else "bar",
                    title=f"{PHASE_NAMES[phase.kind]}{attempt}: {short_duration(phase.seconds)}",
                )


def timeline_of(run: RunView, wanted: Mapping[str, str] | None = None) -> Timeline:
    """Return the time axis of a run, from its start to its end or to now.

    Args:
        run: The run.
        wanted: Parameters of the page's address: `from` and `to`, in seconds since the start,
            select a part of the run; `idle=show` draws stretches without work unshortened.
    """
    query = wanted or {}
    whole = max(run.length, SHORTEST)
    end = min(_seconds(query.get("to", ""), whole), whole)
    start = min(_seconds(query.get("from", ""), 0.0), end - SHORTEST)
    start, end = max(start, 0.0), max(end, SHORTEST)
    return Timeline(axis_of(run, start, end, shorten=query.get("idle") != "show"))


def _seconds(text: str, default: float) -> float:
    return float(text) if _SECONDS.fullmatch(text) else default


def legend(workers: Sequence[WorkerView]) -> tuple[tuple[str, str], ...]:
    """Return CSS class and name of the phases of some workers, except the agent's phase."""
    found = {phase.kind for worker in workers for phase in worker.phases}
    shown = found - {PhaseKind.AGENT}
    return tuple((kind.value, name) for kind, name in PHASE_NAMES.items() if kind in shown)


Range = Mapping[str, str | None]
"""Values of the parameters `from` and `to` of an address, in seconds; None: no limit."""


@dataclass(frozen=True)
class Zoom:
    """The ranges of time that a timeline's buttons show; None if a button would do nothing."""

    label: str
    """The range that is shown now, as text; empty if the whole run is shown."""
    closer: Range | None
    wider: Range | None
    whole: Range


def zoom_of(timeline: Timeline) -> Zoom:
    """Return the ranges of time that a timeline's buttons show."""
    run, start, end = timeline.axis.run, timeline.axis.start, timeline.axis.end
    whole = max(run.length, SHORTEST)
    is_open = end > whole - 0.5
    is_whole = start < 0.001 and is_open
    length = end - start
    closer = None
    if length > 4 * SHORTEST:
        # A live run is followed at its end; otherwise, the middle stays where it is.
        follows = is_open and run.is_live
        since = start + length / 2 if follows else start + length / 4
        closer = _range(since, None if follows else since + length / 2)
    wider = None
    if not is_whole:
        since, to = start - length / 2, end + length / 2
        wider = _range(max(since, 0.0), None if to >= whole else to)
    label = "" if is_whole else f"{short_duration(start)} to {short_duration(end)}"
    return Zoom(label, closer, wider, _range(0.0, None))


def _range(start: float, end: float | None) -> Range:
    return {
        "from": f"{start:.1f}" if start > 0 else None,
        "to": None if end is None else f"{end:.1f}",
    }
