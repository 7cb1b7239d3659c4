"""Calculate the geometry of a run's timeline: bars and ticks in percent of its width."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.reports.phase import WAITS, Phase, PhaseKind
from orchestrator.web.formats import short_duration
from orchestrator.web.reader import Snapshot, WorkerRecord
from orchestrator.web.summaries import worker_badge

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
_MOST_TICKS = 5
_THINNEST = 0.4
"""Minimum width of a bar in percent of the timeline, so that short phases can be seen."""
_SHORTEST_RANGE = 1.0
"""Minimum length in seconds of the part of a run that a timeline shows."""
_LONG_IDLE = 30.0
"""Minimum length in seconds of a stretch without work that is drawn shortened."""
_IDLE_SHARE = 0.08
"""Minimum share of the shown time that a stretch without work must have to be shortened."""
_IDLE_WIDTH = 3.0
"""Width of a shortened stretch without work, in percent of the timeline."""
_CLOSEST = 8.0
"""Minimum distance of two labels of the time axis, in percent of the timeline."""
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?")
_NAMES = {
    PhaseKind.QUEUE: "queued",
    PhaseKind.PREPARE: "preparing",
    PhaseKind.SETUP: "setup",
    PhaseKind.START: "starting",
    PhaseKind.AGENT: "agent",
    PhaseKind.STOP: "ending",
    PhaseKind.TEARDOWN: "teardown",
    PhaseKind.HARVEST: "saving work",
    PhaseKind.CHECK: "checks",
    PhaseKind.RETRY: "waiting to retry",
    PhaseKind.PROVIDER: "waiting for a provider",
}
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
class Stretch:
    """A part of the time axis that is drawn to one scale."""

    start: float
    end: float
    """End of the stretch, in seconds since the start of the run."""
    x: float
    width: float
    is_idle: bool = False

    @property
    def seconds(self) -> float:
        """The length of the stretch in seconds."""
        return self.end - self.start


@dataclass(frozen=True)
class Axis:
    """The time axis of a run, or of a part of it."""

    snapshot: Snapshot
    stretches: tuple[Stretch, ...]

    @property
    def start(self) -> float:
        """Start of the shown time, in seconds since the start of the run."""
        return self.stretches[0].start

    @property
    def end(self) -> float:
        """End of the shown time, in seconds since the start of the run."""
        return self.stretches[-1].end

    @property
    def numbers(self) -> list[list[float]]:
        """Start and end in seconds, place and width in percent, of each stretch, for the script."""
        return [
            [round(number, 3) for number in (one.start, one.end, one.x, one.width)]
            for one in self.stretches
        ]

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The stretches without work that are drawn shortened."""
        return tuple(
            Break(f"{one.x:.3f}%", f"{one.width:.3f}%", f"{short_duration(one.seconds)} of waiting")
            for one in self.stretches
            if one.is_idle
        )

    @property
    def idle(self) -> str:
        """Total length of the shortened stretches, as text; empty if there are none."""
        seconds = sum(one.seconds for one in self.stretches if one.is_idle)
        return short_duration(seconds) if seconds else ""

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """The marks on the time axis, with their labels."""
        found: list[tuple[float, int]] = []
        for stretch in self.stretches:
            for mark in self._marks(stretch):
                x = self._place(mark)
                if not found or x - found[-1][0] >= _CLOSEST:
                    found.append((x, mark))
        return tuple(Tick(f"{x:.3f}%", _label(mark), x > 94) for x, mark in found)

    def _marks(self, stretch: Stretch) -> Iterator[int]:
        if not stretch.is_idle:
            step = _step(sum(one.seconds for one in self.stretches if not one.is_idle))
            first = -(-int(stretch.start * 1000) // (1000 * step)) * step
            yield from range(first, int(stretch.end) + 1, step)

    def _place(self, seconds: float) -> float:
        """Return the position of a moment on the timeline, in percent of the width."""
        for stretch in self.stretches:
            if seconds <= stretch.end:
                share = max(seconds - stretch.start, 0) / max(stretch.seconds, 0.001)
                return stretch.x + share * stretch.width
        return 100.0

    def bars(self, worker: WorkerRecord) -> tuple[Bar, ...]:
        """Return the bars of a worker, one for each phase that is in the shown time."""
        return tuple(self._bars(worker))

    def _bars(self, worker: WorkerRecord) -> Iterator[Bar]:
        for phase in worker.phases:
            start = (phase.start - self.snapshot.began).total_seconds()
            end = start + phase.seconds
            if end >= self.start and start <= self.end:
                yield self._bar(phase, worker, self._place(start), self._place(end))

    def _bar(self, phase: Phase, worker: WorkerRecord, start: float, end: float) -> Bar:
        x = min(start, 100 - _THINNEST)
        width = min(max(end - x, _THINNEST), 100 - x)
        attempt = f", attempt {phase.attempt}" if worker.phases[-1].attempt > 1 else ""
        is_agent = phase.kind is PhaseKind.AGENT
        return Bar(
            x=f"{x:.3f}%",
            width=f"{width:.3f}%",
            end=f"{x + width:.3f}%",
            look=_tone(phase, worker, self.snapshot) if is_agent else phase.kind.value,
            kind="wait" if phase.kind in WAITS else "bar",
            title=f"{_NAMES[phase.kind]}{attempt}: {short_duration(phase.seconds)}",
        )


def axis_of(snapshot: Snapshot, wanted: Mapping[str, str] | None = None) -> Axis:
    """Return the time axis of a run, from its start to its end or to now.

    Args:
        snapshot: The run.
        wanted: Parameters of the page's address: `from` and `to`, in seconds since the start,
            select a part of the run; `idle=show` draws stretches without work unshortened.
    """
    query = wanted or {}
    whole = max((snapshot.until - snapshot.began).total_seconds(), _SHORTEST_RANGE)
    end = min(_seconds(query.get("to", ""), whole), whole)
    start = min(_seconds(query.get("from", ""), 0.0), end - _SHORTEST_RANGE)
    start, end = max(start, 0.0), max(end, _SHORTEST_RANGE)
    gaps = [] if query.get("idle") == "show" else list(_idle(snapshot, start, end))
    return Axis(snapshot, tuple(_stretches(start, end, gaps)))


def _seconds(text: str, default: float) -> float:
    return float(text) if _SECONDS.fullmatch(text) else default


def _idle(snapshot: Snapshot, start: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield start and end of the long stretches in which no worker did anything."""
    busy = sorted(
        ((phase.start - snapshot.began).total_seconds(), phase.seconds)
        for worker in snapshot.workers
        for phase in worker.phases
        if phase.kind not in WAITS
    )
    least = max(_LONG_IDLE, _IDLE_SHARE * (end - start))
    reached = start
    for begin, seconds in [*busy, (end, 0.0)]:
        if min(begin, end) - reached >= least:
            yield reached, min(begin, end)
        reached = max(reached, begin + seconds)


def _stretches(start: float, end: float, gaps: Sequence[tuple[float, float]]) -> Iterator[Stretch]:
    idle = sum(to - since for since, to in gaps)
    scale = (100 - _IDLE_WIDTH * len(gaps)) / max(end - start - idle, 0.001)
    x, reached = 0.0, start
    for since, to in gaps:
        if since > reached:
            yield Stretch(reached, since, x, (since - reached) * scale)
            x += (since - reached) * scale
        yield Stretch(since, to, x, _IDLE_WIDTH, is_idle=True)
        x, reached = x + _IDLE_WIDTH, to
    if end > reached or not gaps:
        yield Stretch(reached, end, x, (end - reached) * scale)


def _step(seconds: float) -> int:
    found = next((one for one in _STEPS if seconds / one <= _MOST_TICKS), None)
    return found or _STEPS[-1] * round(seconds / _STEPS[-1] / _MOST_TICKS + 0.5)


def _label(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds}s" if seconds else "0"
    if seconds < 3600:
        minutes, rest = divmod(seconds, 60)
        return f"{minutes}m {rest}s" if rest else f"{minutes}m"
    hours, rest = divmod(seconds, 3600)
    return f"{hours}h {rest // 60}m" if rest else f"{hours}h"


def _tone(phase: Phase, worker: WorkerRecord, snapshot: Snapshot) -> str:
    last = [one for one in worker.phases if one.kind is PhaseKind.AGENT][-1]
    if phase is not last:
        return "danger"
    return worker_badge(worker, snapshot).tone


def legend(workers: Sequence[WorkerRecord]) -> tuple[tuple[str, str], ...]:
    """Return CSS class and name of the phases of some workers, except the agent's phase."""
    found = {phase.kind for worker in workers for phase in worker.phases}
    shown = found - {PhaseKind.AGENT}
    return tuple((kind.value, name) for kind, name in _NAMES.items() if kind in shown)


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


def zoom_of(axis: Axis) -> Zoom:
    """Return the ranges of time that a timeline's buttons show."""
    whole = max((axis.snapshot.until - axis.snapshot.began).total_seconds(), _SHORTEST_RANGE)
    start, end = axis.start, axis.end
    is_open = end > whole - 0.5
    is_whole = start < 0.001 and is_open
    length = end - start
    closer = None
    if length > 4 * _SHORTEST_RANGE:
        # A live run is followed at its end; otherwise, the middle stays where it is.
        follows = is_open and axis.snapshot.is_live
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
