"""Render a run as one self-contained HTML file: without scripts, requests or other files.

Text of workers is escaped everywhere, and a Content Security Policy in the file blocks scripts and
requests. The file has a light, a dark and a print style, and can be read on screens from 360 pixels
wide.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.results import Status
from orchestrator.base.text.quantities import count, duration, total_cost
from orchestrator.base.text.sanitize import lines, one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.commits.changes import patch, stat_lines
from orchestrator.repository.repository import Repository
from orchestrator.runs.reports.decisions import (
    HEADING,
    candidate_row,
    decision,
    flag_lines,
    merge_lines,
)
from orchestrator.runs.reports.logs import tail
from orchestrator.runs.reports.markup import escape
from orchestrator.runs.reports.model import RunReport
from orchestrator.runs.reports.plain_text import (
    cost,
    heading,
    resources,
    state,
    tally_of_workers,
)
from orchestrator.state.record.states import WAITS, Phase
from orchestrator.state.record.timeline import PHASE_NAMES, Axis, whole_axis
from orchestrator.state.record.worker_view import WorkerView

_LOG = 32 * 1024
"""Maximum number of bytes of one worker's log in the HTML document."""
_DIFF = 256 * 1024
"""Maximum number of bytes of one worker's diff in the document; of larger diffs, only the names of
the changed files are listed.
"""
_ALL_DIFFS = 2 * 1024**2
"""Maximum number of bytes of all workers' diffs in the HTML document."""
_FILES = 500
"""Maximum number of changed files of one worker that the HTML document lists."""
_CANDIDATES = 200
"""Maximum number of candidates in the table of a judgement."""
ROW = 36
"""Height in pixels of a worker's row in the timeline."""
BAR = 14
"""Height in pixels of a bar in the timeline."""
_AXIS = 22
_LABEL = 60
_MOST_WORKERS = 500
"""Maximum number of workers in the drawing."""
_STYLE = Path(__file__).with_name("style.css")
"""A light, a dark and a print style, without other files."""
# protection: html-report-forbids-scripts-and-requests
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
_HEADING = ("Worker", "Status", "Task", "Model", "Steps", "Cost", "Time", "Changes", "Checks")


def render(report: RunReport) -> str:
    """Return the report as an HTML document."""
    title, style = escape(heading(report)), _STYLE.read_text(encoding="utf-8")
    heads = "".join(f'<th scope="col">{name}</th>' for name in _HEADING)
    notices = ""
    if report.notices:
        notices = (
            '<section aria-labelledby="notices">\n<h2 id="notices">Notes</h2>\n'
            f"{_list(report.notices)}</section>\n"
        )
    return "".join([
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#workers">Skip to the workers</a>\n',
        *_head(report),
        '<main>\n<section aria-labelledby="timeline">\n<h2 id="timeline">Timeline</h2>\n'
        f"<figure>\n{timeline(report)}{_legend(report)}</figure>\n</section>\n"
        '<section aria-labelledby="workers">\n<h2 id="workers">Workers</h2>\n'
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="workers">\n<table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n",
        *map(_row, report.workers),
        "</tbody>\n</table>\n</div>\n</section>\n",
        *_decisions(report),
        *_details(report),
        f"{notices}</main>\n</body>\n</html>\n",
    ])  # fmt: skip


def _head(report: RunReport) -> Iterator[str]:
    name = escape(report.name or "orchestrator parallel")
    status = state(report)
    yield (
        f'<header>\n<p class="run">Run <code>{escape(report.run_id)}</code></p>\n'
        f'<h1>{name} <span class="badge {status}">{report.word}</span></h1>\n<dl class="facts">\n'
    )
    tokens = f"{report.tokens:,}" if report.tokens is not None else ""
    for title, value in (
        ("Workers", tally_of_workers(report)),
        ("Duration", duration(report.duration)),
        ("Cost", total_cost([worker.cost for worker in report.workers])),
        ("Tokens", tokens),
        ("Started", f"{report.started_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("Base", report.base[:12]),
        ("At the same time", str(report.slots)),
        ("Engine", one_line(report.engine)),
    ):
        if value:
            yield f"<div><dt>{title}</dt><dd>{escape(value)}</dd></div>\n"
    yield "</dl>\n</header>\n"


def _legend(report: RunReport) -> str:
    used = {phase.kind for worker in report.workers for phase in worker.phases}
    entries = "".join(
        f'<li><svg width="12" height="12" aria-hidden="true"><rect class="p-{kind.value}" '
        f'width="12" height="12"/></svg> {name}</li>\n'
        for kind, name in PHASE_NAMES.items()
        if kind in used
    )
    critical = "<li>\N{BLACK DIAMOND} critical path</li>\n" if report.critical_path else ""
    return f'<figcaption><ul class="legend">\n{entries}{critical}</ul></figcaption>\n'


def _row(worker: WorkerView) -> str:
    result, changes = worker.result, ""
    if result and result.file_count:
        changes = (
            f'{count(result.file_count, "file")} <span class="added">+{result.insertions}</span> '
            f'<span class="removed">-{result.deletions}</span>'
        )
    passed = sum(check.passed for check in worker.checks)
    cells = (
        _badge(worker),
        f'<span class="task">{escape(one_line(worker.spec.task, limit=120))}</span>',
        escape(one_line(worker.spec.model_name)),
        str(worker.steps or ""),
        cost(worker),
        duration(worker.seconds),
        changes,
        f"{passed} of {len(worker.checks)}" if worker.checks else "",
    )
    link = f'<a href="#worker-{worker.worker_id}">{escape(one_line(worker.title))}</a>'
    columns = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr><th scope="row">{link}</th>{columns}</tr>\n'


def _badge(worker: WorkerView) -> str:
    kind = worker.status.value if worker.status else "running"
    return f'<span class="badge {kind}">{escape(worker.outcome)}</span>'


def _decisions(report: RunReport) -> Iterator[str]:
    if report.judgement:
        heads = "".join(f'<th scope="col">{name}</th>' for name in HEADING)
        yield (
            '<section aria-labelledby="judgement">\n<h2 id="judgement">Judgement</h2>\n'
            f"<p>{escape(decision(report.judgement))}</p>\n"
            '<div class="scroll" tabindex="0" role="region" aria-labelledby="judgement">\n<table>\n'
            f"<thead><tr>{heads}</tr></thead>\n<tbody>\n"
        )
        for candidate in report.judgement.ranking[:_CANDIDATES]:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in candidate_row(candidate))
            yield f"<tr>{cells}</tr>\n"
        yield "</tbody>\n</table>\n</div>\n"
        yield f"{_list(flag_lines(report.judgement))}</section>\n"
    if report.merged:
        yield (
            '<section aria-labelledby="merge">\n<h2 id="merge">Merge</h2>\n'
            f"{_list(merge_lines(report.merged))}</section>\n"
        )


def _list(rows: Iterable[str]) -> str:
    found = "".join(f"<li>{escape(one_line(row, limit=1000))}</li>\n" for row in rows)
    return f"<ul>\n{found}</ul>\n" if found else ""


def _details(report: RunReport) -> Iterator[str]:
    changes = _Changes(report)
    for worker in report.workers:
        is_open = " open" if worker.status not in (Status.SUCCESS, None) else ""
        name = escape(one_line(worker.title))
        yield (
            f'<section class="worker" id="worker-{worker.worker_id}">\n<details{is_open}>\n'
            f"<summary><h3>{name}</h3> {_badge(worker)}</summary>\n"
        )
        if worker.message:
            yield f'<p class="message">{escape(one_line(worker.message, limit=2000))}</p>\n'
        yield _block("Task", lines(worker.spec.task)[:20_000])
        facts = [("Branch", worker.spec.branch)]
        if worker.result:
            facts.append(("Commit", worker.result.commit or ""))
            facts += [("Kept", ref) for ref in worker.result.kept_refs[:20]]
            facts += [("CPU and memory", resources(worker.result))]
            facts += [("Limit reached", limit) for limit in worker.result.limits_hit]
            facts += [("Limits not enforced", ", ".join(worker.result.limits_unenforced))]
        facts += [(f"Alert at {alert.at:%H:%M:%S}", alert.detail) for alert in worker.alerts]
        facts += [
            (f"Attempt {number}", f"{attempt.reason or attempt.status}: {attempt.message or ''}")
            for number, attempt in enumerate(worker.attempts, start=1)
        ]
        rows = "".join(
            f"<div><dt>{title}</dt><dd>{escape(one_line(value, limit=500))}</dd></div>\n"
            for title, value in facts
            if value
        )
        yield f'<dl class="facts">\n{rows}</dl>\n'
        for check in worker.checks:
            kind, word = ("success", "passed") if check.passed else ("failed", "failed")
            title = f'Check {escape(one_line(check.name))} <span class="badge {kind}">{word}</span>'
            text = "" if check.passed else tail(Path(check.log), most=_LOG)
            yield _block(title, text, always=True, is_markup=True)
        yield changes.of(worker)
        for title, log in (("Output", "stdout.log"), ("Errors", "stderr.log")):
            yield _block(title, tail(worker.directory / log, most=_LOG))
        yield "</details>\n</section>\n"


def _block(title: str, text: str, *, always: bool = False, is_markup: bool = False) -> str:
    """Return HTML with a title and a text; empty if there is no text and `always` is false."""
    if not text and not always:
        return ""
    head = f"<h4>{title if is_markup else escape(title)}</h4>\n"
    return head + (f'<pre tabindex="0">{escape(text)}</pre>\n' if text else "")


class _Changes:
    """Formats the diffs of workers, up to a limit for the total size of all diffs."""

    def __init__(self, report: RunReport) -> None:
        self._report = report
        self._left = _ALL_DIFFS

    def of(self, worker: WorkerView) -> str:
        result = worker.result
        if result is None or not result.commit or not result.file_count:
            return ""
        try:
            return self._diff(result.base or self._report.base, result.commit)
        except (OrchestratorError, OSError):
            # The commit was removed by a cleanup.
            files = "\n".join(one_line(path) for path in result.files_modified[:_FILES])
            return _block("Changed files", files)

    def _diff(self, base: str, tip: str) -> str:
        """Return a diff with colours; of a diff that is too large, only the names of its files."""
        repository = Repository(self._report.top)
        most = min(_DIFF, self._left)
        data = patch(repository, base=base, tip=tip, limit=most + 1)
        rows = []
        if len(data) <= most:
            self._left -= len(data)
            for line in split_lines(lines(data.decode("utf-8", "replace"))):
                kind = next((name for start, name in _LINES if line.startswith(start)), None)
                content = escape(line)
                rows.append(f'<span class="{kind}">{content}</span>' if kind else content)
            return f'<h4>Changes</h4>\n<pre tabindex="0">{chr(10).join(rows)}</pre>\n'
        for number, (added, gone, path) in enumerate(stat_lines(repository, base=base, tip=tip)):
            if number == _FILES:
                rows.append("...")
                break
            rows.append(f"+{added} -{gone} {one_line(path)}")
        return _block("Changed files", "\n".join(rows))


_LINES = (
    ("diff ", "file"), ("+++", "file"), ("---", "file"), ("@@", "hunk"), ("+", "added"),
    ("-", "removed"),
)  # fmt: skip


def timeline(report: RunReport) -> str:
    """Return the phases of all workers of a run as an SVG element.

    It adapts to the width of its page: bars have positions in percent, and texts keep their size.
    """
    workers = report.workers[:_MOST_WORKERS]
    height, axis = _AXIS + ROW * len(workers), whole_axis(report)
    title = escape(f"Timeline of {len(workers)} workers over {duration(report.length)}")
    parts = [
        f'<svg class="timeline" height="{height}" role="img" aria-label="{title}" '
        'xmlns="http://www.w3.org/2000/svg">\n'
    ]
    for place, label in axis.ticks:
        parts.append(
            f'<line class="tick" x1="{place:.3f}%" x2="{place:.3f}%" y1="14" y2="{height}"/>'
            f'<text class="axis" x="{place:.3f}%" y="10">{label}</text>\n'
        )
    for pause in report.pauses:
        start, end = axis.place(pause.start), axis.place(pause.end)
        title = escape(f"{one_line(pause.provider, limit=60)} refused requests")
        parts.append(
            f'<rect class="pause" x="{start:.3f}%" y="{_AXIS}" width="{end - start:.3f}%" '
            f'height="{height - _AXIS}"><title>{title}</title></rect>\n'
        )
    rows = (_bars(axis, worker, _AXIS + ROW * number) for number, worker in enumerate(workers))
    return "".join([*parts, *rows, "</svg>\n"])


def _bars(axis: Axis, worker: WorkerView, top: int) -> str:
    label = f"{one_line(worker.title, limit=_LABEL)}: {worker.outcome}"
    mark = "\N{BLACK DIAMOND} " if worker.is_critical else ""
    critical = ' class="critical"' if worker.is_critical else ""
    bars = "".join(_bar(axis, phase, top + 18) for phase in worker.phases)
    return (
        f'<g data-worker="{worker.worker_id}">'
        f'<text{critical} x="0" y="{top + 12}">{mark}{escape(label)}</text>\n{bars}</g>\n'
    )


def _bar(axis: Axis, phase: Phase, top: int) -> str:
    start, end = axis.place(phase.start), axis.place(phase.end)
    names = f"p-{phase.kind.value}"
    names += " wait" if phase.kind in WAITS else ""
    names += " bad" if phase.problem else ""
    name = f" {one_line(phase.name, limit=100)}" if phase.name else ""
    attempt = f", attempt {phase.attempt}" if phase.attempt > 1 else ""
    problem = f": {one_line(phase.problem, limit=200)}" if phase.problem else ""
    still = ", not ended" if phase.is_open else ""
    said = f"{PHASE_NAMES[phase.kind]}{name} {duration(phase.seconds)}"
    title = escape(f"{said}{attempt}{still}{problem}")
    return (
        f'<rect class="{names}" x="{start:.3f}%" y="{top}" width="{end - start:.3f}%" '
        f'height="{BAR}"><title>{title}</title></rect>\n'
    )
