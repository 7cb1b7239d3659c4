"""Render a run as one self-contained HTML file: without scripts, requests or other files.

Text of workers is escaped everywhere, and a Content Security Policy in the file blocks scripts and
requests. The file has a light, a dark and a print style, and can be read on screens from 360 pixels
wide.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.errors import OrchestratorError
from orchestrator.git.changes import patch, stat_lines
from orchestrator.git.repository import Repository
from orchestrator.record.timeline import PHASE_NAMES
from orchestrator.record.worker_view import WorkerView
from orchestrator.reports.decisions import (
    HEADING,
    candidate_row,
    decision,
    flag_lines,
    merge_lines,
)
from orchestrator.reports.html_style import STYLE
from orchestrator.reports.logs import tail
from orchestrator.reports.markup import escaped
from orchestrator.reports.model import RunReport
from orchestrator.reports.plain_text import (
    cost,
    heading,
    resources,
    state,
    tally_of_workers,
)
from orchestrator.reports.timeline import timeline
from orchestrator.results import Status
from orchestrator.text.quantities import count, duration, total_cost
from orchestrator.text.sanitize import lines, one_line
from orchestrator.text.split_lines import split_lines

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
# protection: html-report-forbids-scripts-and-requests
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
_HEADING = ("Worker", "Status", "Task", "Model", "Steps", "Cost", "Time", "Changes", "Checks")


def render(report: RunReport) -> str:
    """Return the report as an HTML document."""
    return "".join(_document(report))


def _document(report: RunReport) -> Iterator[str]:
    title = escaped(heading(report))
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#workers">Skip to the workers</a>\n'
    )
    yield from _head(report)
    yield '<main>\n<section aria-labelledby="timeline">\n<h2 id="timeline">Timeline</h2>\n'
    yield f"<figure>\n{timeline(report)}{_legend(report)}</figure>\n</section>\n"
    yield from _table(report)
    yield from _decisions(report)
    yield from _details(report)
    yield from _notices(report)
    yield "</main>\n</body>\n</html>\n"


def _head(report: RunReport) -> Iterator[str]:
    name = escaped(report.name or "orchestrator parallel")
    status = state(report)
    yield (
        f'<header>\n<p class="run">Run <code>{escaped(report.run_id)}</code></p>\n'
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
            yield f"<div><dt>{title}</dt><dd>{escaped(value)}</dd></div>\n"
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


def _table(report: RunReport) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{name}</th>' for name in _HEADING)
    yield (
        '<section aria-labelledby="workers">\n<h2 id="workers">Workers</h2>\n'
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="workers">\n<table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n"
    )
    for worker in report.workers:
        cells = "".join(f"<td>{cell}</td>" for cell in _cells(worker))
        link = f'<a href="#worker-{worker.worker_id}">{escaped(one_line(worker.title))}</a>'
        yield f'<tr><th scope="row">{link}</th>{cells}</tr>\n'
    yield "</tbody>\n</table>\n</div>\n</section>\n"


def _cells(worker: WorkerView) -> Iterator[str]:
    result = worker.result
    passed = sum(check.passed for check in worker.checks)
    yield _badge(worker)
    yield f'<span class="task">{escaped(one_line(worker.spec.task, limit=120))}</span>'
    yield escaped(one_line(worker.spec.model_name))
    yield str(worker.steps or "")
    yield cost(worker)
    yield duration(worker.seconds)
    yield (
        f'{count(result.file_count, "file")} <span class="added">+{result.insertions}</span> '
        f'<span class="removed">-{result.deletions}</span>'
        if result and result.file_count
        else ""
    )
    yield f"{passed} of {len(worker.checks)}" if worker.checks else ""


def _badge(worker: WorkerView) -> str:
    kind = worker.status.value if worker.status else "running"
    return f'<span class="badge {kind}">{escaped(worker.outcome)}</span>'


def _decisions(report: RunReport) -> Iterator[str]:
    if report.judgement:
        heads = "".join(f'<th scope="col">{name}</th>' for name in HEADING)
        yield (
            '<section aria-labelledby="judgement">\n<h2 id="judgement">Judgement</h2>\n'
            f"<p>{escaped(decision(report.judgement))}</p>\n"
            '<div class="scroll" tabindex="0" role="region" aria-labelledby="judgement">\n<table>\n'
            f"<thead><tr>{heads}</tr></thead>\n<tbody>\n"
        )
        for candidate in report.judgement.ranking[:_CANDIDATES]:
            cells = "".join(f"<td>{escaped(cell)}</td>" for cell in candidate_row(candidate))
            yield f"<tr>{cells}</tr>\n"
        yield "</tbody>\n</table>\n</div>\n"
        yield f"{_listed(flag_lines(report.judgement))}</section>\n"
    if report.merged:
        yield (
            '<section aria-labelledby="merge">\n<h2 id="merge">Merge</h2>\n'
            f"{_listed(merge_lines(report.merged))}</section>\n"
        )


def _listed(rows: Iterable[str]) -> str:
    found = "".join(f"<li>{escaped(one_line(row, limit=1000))}</li>\n" for row in rows)
    return f"<ul>\n{found}</ul>\n" if found else ""


def _details(report: RunReport) -> Iterator[str]:
    changes = _Changes(report)
    for worker in report.workers:
        is_open = " open" if worker.status not in (Status.SUCCESS, None) else ""
        name = escaped(one_line(worker.title))
        yield (
            f'<section class="worker" id="worker-{worker.worker_id}">\n<details{is_open}>\n'
            f"<summary><h3>{name}</h3> {_badge(worker)}</summary>\n"
        )
        yield from _explanation(worker)
        yield from _checks(worker)
        yield changes.of(worker)
        for title, log in (("Output", "stdout.log"), ("Errors", "stderr.log")):
            yield _block(title, tail(worker.directory / log, most=_LOG))
        yield "</details>\n</section>\n"


def _explanation(worker: WorkerView) -> Iterator[str]:
    if worker.message:
        yield f'<p class="message">{escaped(one_line(worker.message, limit=2000))}</p>\n'
    yield _block("Task", lines(worker.spec.task)[:20_000])
    rows = "".join(
        f"<div><dt>{title}</dt><dd>{escaped(one_line(value, limit=500))}</dd></div>\n"
        for title, value in _facts(worker)
        if value
    )
    yield f'<dl class="facts">\n{rows}</dl>\n'


def _facts(worker: WorkerView) -> list[tuple[str, str]]:
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
    return facts


def _checks(worker: WorkerView) -> Iterator[str]:
    for check in worker.checks:
        name, kind = escaped(one_line(check.name)), "success" if check.passed else "failed"
        word = "passed" if check.passed else "failed"
        title = f'Check {name} <span class="badge {kind}">{escaped(word)}</span>'
        text = "" if check.passed else tail(Path(check.log), most=_LOG)
        yield _block(title, text, always=True, is_markup=True)


def _block(title: str, text: str, *, always: bool = False, is_markup: bool = False) -> str:
    """Return HTML with a title and a text; empty if there is no text and `always` is false."""
    if not text and not always:
        return ""
    head = f"<h4>{title if is_markup else escaped(title)}</h4>\n"
    return head + (f'<pre tabindex="0">{escaped(text)}</pre>\n' if text else "")


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
            return self._shown(result.base or self._report.base, result.commit)
        except (OrchestratorError, OSError):
            # The commit was removed by a cleanup.
            files = "\n".join(one_line(path) for path in result.files_modified[:_FILES])
            return _block("Changed files", files)

    def _shown(self, base: str, tip: str) -> str:
        repository = Repository(self._report.top)
        most = min(_DIFF, self._left)
        text = patch(repository, base=base, tip=tip, limit=most + 1)
        if len(text) <= most:
            self._left -= len(text)
            return f"<h4>Changes</h4>\n{_colored(lines(text.decode('utf-8', 'replace')))}"
        rows = []
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


def _colored(text: str) -> str:
    """Return a patch as HTML with its lines in colours."""
    shown = []
    for line in split_lines(text):
        kind = next((name for start, name in _LINES if line.startswith(start)), None)
        content = escaped(line)
        shown.append(f'<span class="{kind}">{content}</span>' if kind else content)
    return f'<pre tabindex="0">{chr(10).join(shown)}</pre>\n'


def _notices(report: RunReport) -> Iterator[str]:
    if report.notices:
        yield (
            '<section aria-labelledby="notices">\n<h2 id="notices">Notes</h2>\n'
            f"{_listed(report.notices)}</section>\n"
        )
