"""The time axis of a run, for all drawings: positions in percent of the width, and marks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.states import WAITS, PhaseKind

PHASE_NAMES: Mapping[PhaseKind, str] = {
    PhaseKind.QUEUE: "queue",
    PhaseKind.PREPARE: "preparation",
    PhaseKind.SETUP: "setup",
    PhaseKind.START: "start",
    PhaseKind.AGENT: "agent",
    PhaseKind.STOP: "end",
    PhaseKind.TEARDOWN: "teardown",
    PhaseKind.HARVEST: "saving work",
    PhaseKind.CHECK: "checks",
    PhaseKind.RETRY: "waiting to retry",
    PhaseKind.PROVIDER: "waiting for a provider",
}
"""Names of the phases in drawings and their legends, other words than those of states."""
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
_MOST_TICKS = 5
SHORTEST = 1.0
"""Minimum length in seconds of the part of a run that an axis shows."""
_LONG_IDLE = 30.0
"""Minimum length in seconds of a stretch without work that is drawn shortened."""
_IDLE_SHARE = 0.08
"""Minimum share of the shown time that a stretch without work must have to be shortened."""
_IDLE_WIDTH = 3.0
"""Width of a shortened stretch without work, in percent of the axis."""
_CLOSEST = 8.0
"""Minimum distance of two labels of the axis, in percent of its width."""


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

    run: RunView
    stretches: tuple[Stretch, ...]

    @property
    def start(self) -> float:
        """Start of the shown time, in seconds since the start of the run."""
        return self.stretches[0].start

    @property
    def end(self) -> float:
        """End of the shown time, in seconds since the start of the run."""
        return self.stretches[-1].end

    def place(self, moment: datetime) -> float:
        """Return the position of a moment, in percent of the width."""
        return self._place((moment - self.run.started_at).total_seconds())

    def _place(self, seconds: float) -> float:
        for stretch in self.stretches:
            if seconds <= stretch.end:
                share = max(seconds - stretch.start, 0) / max(stretch.seconds, 0.001)
                return stretch.x + share * stretch.width
        return 100.0

    @property
    def ticks(self) -> Iterator[tuple[float, str]]:
        """Positions in percent, and labels, of the marks on the axis."""
        last = -100.0
        shown = sum(part.seconds for part in self.stretches if not part.is_idle)
        days = _STEPS[-1] * round(shown / _STEPS[-1] / _MOST_TICKS + 0.5)
        step = next((step for step in _STEPS if shown / step <= _MOST_TICKS), days)
        for stretch in self.stretches:
            first = -(-int(stretch.start * 1000) // (1000 * step)) * step
            for mark in () if stretch.is_idle else range(first, int(stretch.end) + 1, step):
                x = self._place(mark)
                if x - last >= _CLOSEST:
                    last = x
                    parts = ((mark // 3600, "h"), (mark // 60 % 60, "m"), (mark % 60, "s"))
                    yield x, " ".join(f"{n}{unit}" for n, unit in parts if n) or "0"


def whole_axis(run: RunView) -> Axis:
    """Return the time axis of a whole run to one scale."""
    length = max(run.length, SHORTEST)
    return Axis(run, (Stretch(0.0, length, 0.0, 100.0),))


def axis_of(run: RunView, start: float, end: float, *, shorten: bool) -> Axis:
    """Return the time axis of a part of a run.

    Args:
        run: The run.
        start: Start of the part, in seconds since the start of the run.
        end: End of the part.
        shorten: Whether long stretches in which no worker did anything are drawn shortened.
    """
    gaps = list(_idle(run, start, end)) if shorten else []
    idle = sum(to - since for since, to in gaps)
    scale = (100 - _IDLE_WIDTH * len(gaps)) / max(end - start - idle, 0.001)
    x, reached = 0.0, start
    stretches = []
    for since, to in gaps:
        if since > reached:
            stretches.append(Stretch(reached, since, x, (since - reached) * scale))
            x += (since - reached) * scale
        stretches.append(Stretch(since, to, x, _IDLE_WIDTH, is_idle=True))
        x, reached = x + _IDLE_WIDTH, to
    if end > reached or not gaps:
        stretches.append(Stretch(reached, end, x, (end - reached) * scale))
    return Axis(run, tuple(stretches))


def _idle(run: RunView, start: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield start and end of the long stretches in which no worker did anything."""
    busy = sorted(
        ((phase.start - run.started_at).total_seconds(), phase.seconds)
        for worker in run.workers
        for phase in worker.phases
        if phase.kind not in WAITS
    )
    least = max(_LONG_IDLE, _IDLE_SHARE * (end - start))
    reached = start
    for begin, seconds in [*busy, (end, 0.0)]:
        if min(begin, end) - reached >= least:
            yield reached, min(begin, end)
        reached = max(reached, begin + seconds)
