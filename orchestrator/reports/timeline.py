"""Draw the phases of all workers of a run as SVG, which adapts to the width of its page.

Bars have positions in percent of the run's duration, and texts keep their size: the drawing is
readable on narrow pages too. Colours and patterns come from classes: see `STYLE`.
"""

from collections.abc import Iterator

from orchestrator.record.states import WAITS, Phase
from orchestrator.record.timeline import PHASE_NAMES, Axis, whole_axis
from orchestrator.record.worker_view import WorkerView
from orchestrator.reports.markup import escaped
from orchestrator.reports.model import RunReport
from orchestrator.text.quantities import duration
from orchestrator.text.sanitize import one_line

ROW = 36
"""Height in pixels of a worker's row in the timeline."""
BAR = 14
"""Height in pixels of a bar in the timeline."""
_AXIS = 22
_LABEL = 60
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


def timeline(report: RunReport) -> str:
    """Return the timeline of a run as an SVG element."""
    workers = report.workers[:_MOST_WORKERS]
    height, axis = _AXIS + ROW * len(workers), whole_axis(report)
    rows = (_row(axis, worker, _AXIS + ROW * number) for number, worker in enumerate(workers))
    title = f"Timeline of {len(workers)} workers over {duration(report.length)}"
    return "".join(
        (
            f'<svg class="timeline" height="{height}" role="img" aria-label="{escaped(title)}" '
            'xmlns="http://www.w3.org/2000/svg">\n',
            *_ticks(axis, height),
            *_pauses(axis, height),
            *rows,
            "</svg>\n",
        )
    )


def _ticks(axis: Axis, height: int) -> Iterator[str]:
    for place, label in axis.ticks:
        yield (
            f'<line class="tick" x1="{place:.3f}%" x2="{place:.3f}%" y1="14" y2="{height}"/>'
            f'<text class="axis" x="{place:.3f}%" y="10">{label}</text>\n'
        )


def _pauses(axis: Axis, height: int) -> Iterator[str]:
    for pause in axis.run.pauses:
        start, end = axis.place(pause.start), axis.place(pause.end)
        title = escaped(f"{one_line(pause.provider, limit=60)} refused requests")
        yield (
            f'<rect class="pause" x="{start:.3f}%" y="{_AXIS}" width="{end - start:.3f}%" '
            f'height="{height - _AXIS}"><title>{title}</title></rect>\n'
        )


def _row(axis: Axis, worker: WorkerView, top: int) -> str:
    label = f"{one_line(worker.title, limit=_LABEL)}: {worker.outcome}"
    mark = "\N{BLACK DIAMOND} " if worker.is_critical else ""
    critical = ' class="critical"' if worker.is_critical else ""
    bars = "".join(_bar(axis, phase, top + 18) for phase in worker.phases)
    return (
        f'<g data-worker="{worker.worker_id}">'
        f'<text{critical} x="0" y="{top + 12}">{mark}{escaped(label)}</text>\n{bars}</g>\n'
    )


def _bar(axis: Axis, phase: Phase, top: int) -> str:
    start, end = axis.place(phase.start), axis.place(phase.end)
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
    said = f"{PHASE_NAMES[phase.kind]}{name}"
    return f"{said} {duration(phase.seconds)}{attempt}{still}{problem}"
