"""Draw the phases of all workers of a run as SVG, which adapts to the width of its page.

Bars have positions in percent of the run's duration, and texts keep their size: the drawing is
readable on narrow pages too. Colours and patterns come from classes: see `STYLE`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from orchestrator.reports.markup import escaped
from orchestrator.reports.model import RunReport, WorkerReport
from orchestrator.reports.phase import WAITS, Phase, PhaseKind
from orchestrator.reports.plain_text import outcome
from orchestrator.text.quantities import duration
from orchestrator.text.sanitize import one_line

ROW = 36
"""Height in pixels of a worker's row in the timeline."""
BAR = 14
"""Height in pixels of a bar in the timeline."""
_AXIS = 22
_LABEL = 60
_MOST_TICKS = 6
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_MOST_WORKERS = 500
"""Maximum number of workers in the drawing."""
STYLE = """
.timeline { display: block; width: 100%; font: 12px/1 system-ui, sans-serif; }
.timeline text { fill: var(--text); }
.timeline .tick { stroke: var(--line); }
.timeline .axis { fill: var(--dim); font-size: 11px; }
.timeline .critical { font-weight: 600; }
.timeline .pause { fill: var(--provider); opacity: .15; }
.p-queue { fill: var(--queue); } .p-prepare { fill: var(--prepare); }
.p-setup { fill: var(--setup); } .p-start { fill: var(--prepare); }
.p-agent { fill: var(--agent); } .p-stop { fill: var(--stop); }
.p-teardown { fill: var(--setup); } .p-harvest { fill: var(--harvest); }
.p-check { fill: var(--check); } .p-retry { fill: var(--retry); }
.p-provider { fill: var(--provider); }
.bad { stroke: var(--failed); stroke-width: 2; }
.wait { fill-opacity: .45; }
"""
LEGEND = {
    PhaseKind.QUEUE: "queue",
    PhaseKind.PREPARE: "prepare",
    PhaseKind.SETUP: "setup, teardown",
    PhaseKind.AGENT: "agent",
    PhaseKind.STOP: "stop",
    PhaseKind.HARVEST: "harvest",
    PhaseKind.CHECK: "check",
    PhaseKind.RETRY: "wait for a retry",
    PhaseKind.PROVIDER: "wait for a provider",
}
"""Names of the colours in the drawing's legend."""


def timeline(report: RunReport) -> str:
    """Return the timeline of a run as an SVG element."""
    workers = report.workers[:_MOST_WORKERS]
    height = _AXIS + ROW * len(workers)
    rows = (_row(report, worker, _AXIS + ROW * number) for number, worker in enumerate(workers))
    title = f"Timeline of {len(workers)} workers over {duration(_length(report))}"
    return "".join(
        (
            f'<svg class="timeline" height="{height}" role="img" aria-label="{escaped(title)}" '
            'xmlns="http://www.w3.org/2000/svg">\n',
            *_axis(report, height),
            *_pauses(report, height),
            *rows,
            "</svg>\n",
        )
    )


def _length(report: RunReport) -> float:
    """Return the number of seconds that the drawing's whole width represents."""
    ends = [phase.end for worker in report.workers for phase in worker.phases]
    last = max([report.until, *ends])
    return max((last - report.started_at).total_seconds(), 0.001)


def _percent(report: RunReport, moment: datetime) -> float:
    share = (moment - report.started_at).total_seconds() / _length(report)
    return 100 * min(max(share, 0.0), 1.0)


def _axis(report: RunReport, height: int) -> Iterator[str]:
    length = _length(report)
    step = next((step for step in _STEPS if length / step <= _MOST_TICKS), _STEPS[-1])
    for number in range(min(int(length // step), 100) + 1):
        place = _percent(report, report.started_at + timedelta(seconds=number * step))
        yield (
            f'<line class="tick" x1="{place:.3f}%" x2="{place:.3f}%" y1="14" y2="{height}"/>'
            f'<text class="axis" x="{place:.3f}%" y="10">{_tick(number * step)}</text>\n'
        )


def _tick(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return " ".join(f"{number}{unit}" for number, unit in parts if number) or "0"


def _pauses(report: RunReport, height: int) -> Iterator[str]:
    for pause in report.pauses:
        start, end = _percent(report, pause.start), _percent(report, pause.end)
        title = escaped(f"{one_line(pause.provider, limit=60)} refused requests")
        yield (
            f'<rect class="pause" x="{start:.3f}%" y="{_AXIS}" width="{end - start:.3f}%" '
            f'height="{height - _AXIS}"><title>{title}</title></rect>\n'
        )


def _row(report: RunReport, worker: WorkerReport, top: int) -> str:
    label = f"{one_line(worker.title, limit=_LABEL)}: {outcome(worker)}"
    mark = "\N{BLACK DIAMOND} " if worker.is_critical else ""
    critical = ' class="critical"' if worker.is_critical else ""
    bars = "".join(_bar(report, phase, top + 18) for phase in worker.phases)
    return (
        f'<g data-worker="{worker.worker_id}">'
        f'<text{critical} x="0" y="{top + 12}">{mark}{escaped(label)}</text>\n{bars}</g>\n'
    )


def _bar(report: RunReport, phase: Phase, top: int) -> str:
    start, end = _percent(report, phase.start), _percent(report, phase.end)
    names = f"p-{phase.kind.value}"
    names += " wait" if phase.kind in WAITS else ""
    names += " bad" if phase.problem else ""
    return (
        f'<rect class="{names}" x="{start:.3f}%" y="{top}" width="{end - start:.3f}%" '
        f'height="{BAR}"><title>{escaped(_title(phase))}</title></rect>\n'
    )


def _title(phase: Phase) -> str:
    name = f" {one_line(phase.name, limit=100)}" if phase.name else ""
    attempt = f", attempt {phase.attempt}" if phase.attempt > 1 else ""
    problem = f": {one_line(phase.problem, limit=200)}" if phase.problem else ""
    still = ", not ended" if phase.is_open else ""
    return f"{phase.kind.value}{name} {duration(phase.seconds)}{attempt}{still}{problem}"
