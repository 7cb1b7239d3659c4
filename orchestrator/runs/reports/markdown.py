"""Render a run as Markdown for a pull request, job summary or chat: a table and folded details.

Text of workers can neither leave its place in the document nor notify anybody: it is escaped in
tables, and stands in fences longer than any run of backticks in it; `@`, `#` and links are broken.
"""

import re
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from orchestrator.base.text.quantities import count, duration
from orchestrator.base.text.sanitize import one_line
from orchestrator.review.judging.judgement import Judgement
from orchestrator.runs.reports.decisions import (
    HEADING,
    candidate_row,
    decision,
    flag_lines,
    merge_lines,
)
from orchestrator.runs.reports.logs import output_tail, tail
from orchestrator.runs.reports.model import RunReport
from orchestrator.runs.reports.plain_text import cost, heading, resources, sums
from orchestrator.state.record.states import RunState
from orchestrator.state.record.worker_view import WorkerView

MOST = 60_000
"""Maximum number of characters of a report; GitHub accepts 65,536 in a comment."""
_LOG = 4000
"""Maximum number of characters of one worker's output in a report."""
_CELL = 80
_CHECKS = 5
"""Maximum number of failed checks of one worker whose output is shown."""
_SPECIAL = re.compile(r"([\\`*_\[\]{}<>|~$!()&])")
_JOINER = "\N{WORD JOINER}"
_ADDRESS = re.compile(r"(?<=[@#!])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH-)", re.IGNORECASE)
"""Pattern of positions at which an inserted character breaks a mention, reference or link."""
_DECIDED = 12_000
"""Maximum number of characters of a judgement, and of a merge, in a report."""
_HEADING = ("Worker", "Task", "Status", "Changes", "Checks", "Cost", "Time")


def render(report: RunReport, *, most: int = MOST) -> str:
    """Return the report as Markdown of at most `most` characters."""
    # By this hidden text, a program finds its own earlier comment.
    marker = re.sub(r"[^A-Za-z0-9_.]+", "-", report.name or "parallel")
    head = f"<!-- orchestrator:{marker} -->\n\n### {inline(heading(report))}\n\n"
    head += f"{inline(sums(report))}\n\n"
    parts = [head, *_table(report, most - len(head) - 200)]
    sections: list[Iterable[str]] = []
    if report.judgement:
        sections.append(_judgement(report.judgement))
    if report.merged:
        sections.append(["\n#### Merge\n\n", *_list(merge_lines(report.merged))])
    for section in sections:
        room = min(most - sum(map(len, parts)) - 200, _DECIDED)
        text = ""
        for part in section:
            if len(text) + len(part) > room:
                text = f"{text}\n..." if text else ""
                break
            text += part
        parts.append(text)
    most -= sum(map(len, parts)) + 100
    problems = (*report.bad, *(report.unfinished if report.state is RunState.DIED else ()))
    for number, worker in enumerate(problems):
        details = _details(worker)
        most -= len(details)
        if most < 0:
            parts.append(f"\nDetails of {len(problems) - number} more workers are not shown.\n")
            break
        parts.append(details)
    return "".join(parts)


def _judgement(judgement: Judgement) -> Iterator[str]:
    yield f"\n#### Judgement\n\n{inline(decision(judgement))}\n\n"
    yield _row(HEADING) + _row(["---"] * len(HEADING))
    for candidate in judgement.ranking:
        yield _row([inline(cell) for cell in candidate_row(candidate)])
    yield "\n"
    yield from _list(flag_lines(judgement))


def _list(rows: Iterable[str]) -> Iterator[str]:
    return (f"- {inline(row)}\n" for row in rows)


def _table(report: RunReport, most: int) -> Iterator[str]:
    """Yield the rows of as many workers as fit, and the number of workers left out."""
    yield _row(_HEADING) + _row(["---"] * len(_HEADING))
    for number, worker in enumerate(report.workers):
        result, changes = worker.result, ""
        if result and result.file_count:
            files = count(result.file_count, "file")
            changes = f"{files}, +{result.insertions} -{result.deletions}"
        passed = sum(check.passed for check in worker.checks)
        line = _row([
            inline(worker.name or f"{worker.worker_id}"),
            inline(one_line(worker.spec.task, limit=_CELL)),
            inline(worker.outcome),
            changes,
            f"{passed}/{len(worker.checks)}" if worker.checks else "",
            cost(worker),
            duration(worker.seconds),
        ])  # fmt: skip
        most -= len(line)
        if most < 0:
            yield f"\n{len(report.workers) - number} more workers are not shown.\n"
            return
        yield line


def _row(cells: "list[str] | tuple[str, ...]") -> str:
    return f"| {' | '.join(cells)} |\n"


def _details(worker: WorkerView) -> str:
    """Return a folded section with the details of a worker that did not succeed."""
    title = f"{worker.title}: {worker.outcome}"
    parts = [f"\n<details><summary>{_html(title)}</summary>\n"]
    if worker.message:
        parts.append(f"\n{inline(one_line(worker.message, limit=1000))}\n")
    used = resources(worker.result) if worker.result else ""
    parts.append(f"\nBranch {inline(worker.spec.branch)}{f'; {used}' if used else ''}\n")
    failed = [check for check in worker.checks if not check.passed]
    for check in failed[:_CHECKS]:
        parts.append(f"\nCheck {inline(check.name)}:\n")
        parts.append(_output(tail(Path(check.log), most=4 * _LOG)))
    if not failed:
        parts.append(_output(output_tail(worker.directory, most=4 * _LOG)))
    parts.append("\n</details>\n")
    return "".join(parts)


def _output(text: str) -> str:
    return f"\n{fence(text[-_LOG:])}\n" if text else ""


def inline(text: str) -> str:
    """Return text escaped for a line of Markdown, so that nothing in it is markup or a link."""
    # protection: markdown-is-escaped
    escaped = _SPECIAL.sub(r"\\\1", one_line(text, limit=4000))
    # protection: mentions-and-links-are-broken
    return _ADDRESS.sub(_JOINER, escaped)


def _html(text: str) -> str:
    """Return text escaped for HTML inside Markdown, so that nothing in it is markup."""
    # protection: html-in-markdown-is-escaped
    return _ADDRESS.sub(_JOINER, escape(one_line(text, limit=200)))


def fence(text: str) -> str:
    """Return text as a block of code, with a fence that the text cannot close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    # protection: fence-is-longer-than-those-in-text
    line = "`" * max(longest + 1, 3)
    return f"{line}text\n{text}\n{line}"
