"""Render a run for GitHub Actions: annotations, the summary and the outputs of a step.

GitHub shows ten annotations of a kind for each step, and silently drops the rest. A summary has at
most 1 MiB. An output ends at a delimiter, so the delimiter must not occur in the value.
"""

import errno
import secrets
from collections.abc import Iterator, Mapping
from io import FileIO
from itertools import islice
from pathlib import Path

from orchestrator.base.files.output import open_to_append
from orchestrator.base.results import Status
from orchestrator.base.text.sanitize import one_line
from orchestrator.runs.reports import markdown
from orchestrator.runs.reports.decisions import winner
from orchestrator.runs.reports.findings import findings_of
from orchestrator.runs.reports.model import RunReport
from orchestrator.runs.reports.plain_text import counts, state
from orchestrator.state.record.worker_view import WorkerView

MOST_ANNOTATIONS = 10
"""Maximum number of annotations of a kind (error, warning) that GitHub shows for a step."""
MOST_OF_SUMMARY = 1_000_000
"""Maximum size of a step's summary in bytes; GitHub's own limit is 1 MiB."""
_BYTES = 4
"""Maximum number of bytes of a character in UTF-8."""
_MESSAGE = 1000
_OF_ONE_WORKER = 5
"""Maximum number of findings of one worker that become annotations."""
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def annotations(report: RunReport) -> list[str]:
    """Return commands that annotate a job with failures: at most ten errors and ten warnings."""
    errors = [worker for worker in report.bad if worker.status is not Status.PARTIAL]
    warnings = [worker for worker in report.bad if worker.status is Status.PARTIAL]
    return [*_commands(report, "error", errors), *_commands(report, "warning", warnings)]


def _commands(report: RunReport, kind: str, workers: list[WorkerView]) -> Iterator[str]:
    shown = [_commands_of_worker(report, worker) for worker in workers]
    # The first of each worker comes first: ten findings of one worker must not hide another.
    first = [commands[0] for commands in shown]
    ordered = [*first, *(command for commands in shown for command in commands[1:])]
    found = [command.replace("::KIND", f"::{kind}", 1) for command in ordered]
    # protection: at-most-ten-annotations-of-kind
    if len(found) <= MOST_ANNOTATIONS:
        yield from found
        return
    yield from found[: MOST_ANNOTATIONS - 1]
    left = len(found) - MOST_ANNOTATIONS + 1
    yield _command(kind, f"{left} more problems: see the summary of the job", title="orchestrator")


def _commands_of_worker(report: RunReport, worker: WorkerView) -> list[str]:
    title = f"{one_line(worker.title)}: {worker.outcome}"
    failures = (finding for finding in findings_of(report, worker) if finding.is_failure)
    found = []
    for finding in islice(failures, _OF_ONE_WORKER):
        place = {"file": finding.path, "line": str(finding.line)}
        column = {"col": str(finding.column)} if finding.column else {}
        found.append(_command("KIND", finding.text, **place, **column, title=title))
    return found or [_command("KIND", worker.message or worker.outcome, title=title)]


def _command(kind: str, message: str, **properties: str) -> str:
    """Return a workflow command of GitHub; values are escaped and cannot begin another command."""
    # protection: properties-of-annotations-are-escaped
    given = ",".join(f"{name}={_escape(text, _PROPERTY)}" for name, text in properties.items())
    return f"::{kind} {given}::{_escape(one_line(message, limit=_MESSAGE), _DATA)}"


def _escape(text: str, table: Mapping[str, str]) -> str:
    return "".join(table.get(character, character) for character in text)


def summary(report: RunReport, *, most: int) -> str:
    """Return the report as Markdown of at most `most` bytes, for the summary of a step."""
    return markdown.render(report, most=max(most, 0) // _BYTES)


def write_summary(report: RunReport, path: Path) -> None:
    """Append the report to the summary of a step, if the summary is not full.

    Raises:
        OSError: The file cannot be written.
    """
    with FileIO(open_to_append(path), "ab") as file:
        # protection: summary-stays-below-its-limit
        left = MOST_OF_SUMMARY - file.tell()
        if left > MOST_OF_SUMMARY // 100:
            _append(file, summary(report, most=left) + "\n")


def outputs(report: RunReport) -> dict[str, str]:
    """Return the outputs of a step by name, such as `run-id` and `status`."""
    number, best = counts(report), winner(report.judgement)
    return {
        "run-id": report.run_id,
        "status": state(report),
        "passed": str(report.passed),
        "failed": str(number["failed"] + number["timeout"]),
        "cost": f"{report.cost:.6f}" if report.cost_known else "",
        "winner": str(best.worker_id) if best else "",
        "winner-commit": best.commit if best else "",
    }


def write_outputs(report: RunReport, path: Path) -> None:
    """Append the outputs of a step to the file in which GitHub Actions expects them.

    Raises:
        OSError: The file cannot be written.
    """
    text = ""
    for name, value in outputs(report).items():
        delimiter = f"orchestrator_{secrets.token_hex(16)}"
        text += f"{name}<<{delimiter}\n{value}\n{delimiter}\n"
    with FileIO(open_to_append(path), "ab") as file:
        _append(file, text)


def _append(file: FileIO, text: str) -> None:
    """Append a text in one system call.

    A process that is killed leaves all of the text or nothing, unless it is killed in the middle of
    the call: Linux then ends the call after a page of the file, so outputs, which are short, are
    almost always whole, and of a long summary the beginning may remain. A new file in place of
    the old one would not have this weakness, but would lose what other programs append.

    Raises:
        OSError: The disk is full, or the file cannot be written; nothing was appended.
    """
    data, end = text.encode("utf-8", "replace"), file.tell()
    # protection: summary-is-appended-in-one-call
    if file.write(data) != len(data):
        # GitHub rejects a file of outputs that ends within a value.
        # protection: no-half-of-output-on-full-disk
        file.truncate(end)
        raise OSError(errno.ENOSPC, "the disk has no room for the whole text")
