"""Show a run on a terminal: workers, timeline, files that several workers changed, judgement."""

from collections.abc import Mapping

from orchestrator.base.text.quantities import duration
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.cli.output.file_matrix import file_matrix
from orchestrator.faces.cli.output.formats import table
from orchestrator.faces.cli.output.judgement_table import judgement_text
from orchestrator.runs.reports.model import RunReport
from orchestrator.runs.reports.plain_text import cost, heading, sums
from orchestrator.state.record.states import PhaseKind
from orchestrator.state.record.timeline import PHASE_NAMES
from orchestrator.state.record.worker_view import WorkerView

_WIDTH = 100
"""Columns of the timeline if the output is not a terminal."""
_NARROWEST = 20
_LABEL = 24
_FILES = 50
_MARKS: Mapping[PhaseKind, str] = {
    PhaseKind.QUEUE: ".",
    PhaseKind.PREPARE: "-",
    PhaseKind.SETUP: "s",
    PhaseKind.START: "-",
    PhaseKind.AGENT: "#",
    PhaseKind.STOP: "!",
    PhaseKind.TEARDOWN: "t",
    PhaseKind.HARVEST: "+",
    PhaseKind.CHECK: "c",
    PhaseKind.RETRY: "~",
    PhaseKind.PROVIDER: "%",
}


def overview(report: RunReport, *, width: int | None = None) -> str:
    """Return a report for a terminal.

    Args:
        report: The run.
        width: Columns of the terminal; None: no limit.
    """
    rows = [("WORKER", "TASK", "STATE", "COST", "TIME", "FILES")]
    for worker in report.workers:
        files = str(worker.result.file_count if worker.result else 0)
        task, took = one_line(worker.spec.task, limit=80), duration(worker.seconds)
        rows.append((_name(worker), task, worker.outcome, cost(worker), took, files))
    results = [worker.result for worker in report.workers if worker.result]
    parts = [
        f"{one_line(heading(report))}\n{one_line(sums(report))}",
        table(rows, width=width),
        timeline(report, width=width),
        file_matrix(results, most=_FILES),
        judgement_text(report.judgement) if report.judgement else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _name(worker: WorkerView) -> str:
    return f"W{worker.worker_id} {one_line(worker.name or '', limit=_LABEL)}".strip()


def timeline(report: RunReport, *, width: int | None = None) -> str:
    """Return a chart of the run: a line for each worker, a column for each span of time.

    Args:
        report: The run.
        width: Columns of the terminal. Default: 100.
    """
    names = [_name(worker) for worker in report.workers]
    label = max(map(len, names), default=0)
    columns = max((width or _WIDTH) - label - 3, _NARROWEST)
    lines, used = [], set[str]()
    for name, worker in zip(names, report.workers, strict=True):
        scale = columns / report.length
        line = ""
        for phase in worker.phases:
            start = (phase.start - report.started_at).total_seconds() * scale
            end = (phase.end - report.started_at).total_seconds() * scale
            line = line.ljust(round(start))
            # The agent stays visible in a long run.
            least = 1 if phase.kind is PhaseKind.AGENT else 0
            line += _MARKS[phase.kind] * max(round(end) - len(line), least)
        used |= {*line}
        mark = "*" if worker.is_critical else " "
        lines.append(f"{name.ljust(label)} {mark} {line}".rstrip())
    kinds = [kind for kind in PHASE_NAMES if _MARKS[kind] in used and kind is not PhaseKind.START]
    legend = ", ".join(f"{_MARKS[kind]} {PHASE_NAMES[kind]}" for kind in kinds)
    critical = "; * critical path" if report.critical_path else ""
    return "\n".join([*lines, f"{duration(report.length)}: {legend}{critical}"])
