"""The geometry of a timeline: bars and ticks in percent of its width."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from orchestrator.reports.phase import WAITS, Phase, PhaseKind
from orchestrator.web.formats import short_duration
from orchestrator.web.looks import worker_badge
from orchestrator.web.reader import Snapshot, WorkerRecord

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
_MOST_TICKS = 5
_THINNEST = 0.4
"""Narrowest bar in percent, so that short phases can be seen."""
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
    """Class of the rectangle: the phase, or for an agent the tone of its end."""
    kind: Kind
    title: str


@dataclass(frozen=True)
class Tick:
    """A mark of the time axis."""

    x: str
    label: str
    is_last: bool
    """Whether the mark is so close to the right end that its label must not be centred."""


@dataclass(frozen=True)
class Axis:
    """The time axis of a run."""

    begin: datetime
    seconds: float
    ticks: tuple[Tick, ...]

    def bars(self, worker: WorkerRecord, snapshot: Snapshot) -> tuple[Bar, ...]:
        """Return the bars of a worker."""
        return tuple(self._bar(phase, worker, snapshot) for phase in worker.phases)

    def _bar(self, phase: Phase, worker: WorkerRecord, snapshot: Snapshot) -> Bar:
        begin = (phase.start - self.begin).total_seconds()
        x = min(max(100 * begin / self.seconds, 0), 100 - _THINNEST)
        width = min(max(100 * phase.seconds / self.seconds, _THINNEST), 100 - x)
        attempt = f", attempt {phase.attempt}" if worker.phases[-1].attempt > 1 else ""
        is_agent = phase.kind is PhaseKind.AGENT
        return Bar(
            x=f"{x:.3f}%",
            width=f"{width:.3f}%",
            end=f"{x + width:.3f}%",
            look=_tone(phase, worker, snapshot) if is_agent else phase.kind.value,
            kind="wait" if phase.kind in WAITS else "bar",
            title=f"{_NAMES[phase.kind]}{attempt}: {short_duration(phase.seconds)}",
        )


def axis_of(snapshot: Snapshot) -> Axis:
    """Return the time axis of a run: from its start to its end, or to now."""
    seconds = max((snapshot.until - snapshot.began).total_seconds(), 1.0)
    return Axis(snapshot.began, seconds, _ticks(seconds))


def _ticks(seconds: float) -> tuple[Tick, ...]:
    step = next((one for one in _STEPS if seconds / one <= _MOST_TICKS), None)
    if step is None:
        step = _STEPS[-1] * round(seconds / _STEPS[-1] / _MOST_TICKS + 0.5)
    marks = range(0, int(seconds) + 1, step)
    return tuple(
        Tick(f"{100 * mark / seconds:.3f}%", _label(mark), mark > 0.94 * seconds) for mark in marks
    )


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
    if worker.alert is not None and worker.result is None:
        return "warning"
    return worker_badge(worker, snapshot).tone


def legend(workers: Sequence[WorkerRecord]) -> tuple[tuple[str, str], ...]:
    """Return class and name of the phases that occur, besides the agent's."""
    found = {phase.kind for worker in workers for phase in worker.phases}
    shown = found - {PhaseKind.AGENT}
    return tuple((kind.value, name) for kind, name in _NAMES.items() if kind in shown)
