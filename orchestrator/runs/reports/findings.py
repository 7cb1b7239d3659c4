"""Find the places in files that the output of failed checks or failed tasks complains about.

Compilers, linters and test programs print `path:line:column: text`, `path(line,column): text`, or a
text followed by ` --> path:line:column`. A check may write a SARIF file instead, which counts even
if the check passed. Output and SARIF files are hostile: a finding counts only if its path names a
file that the worker changed, or a file of the checkout.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from orchestrator.base.results import CheckResult, Status
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.split_lines import lines_of_output
from orchestrator.runs.reports.logs import tail
from orchestrator.runs.reports.model import RunReport
from orchestrator.runs.reports.sarif_input import Level, read_sarif
from orchestrator.sandbox.supervision.output import findings_file
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.worker.workspace.layout import WORKSPACE

MOST = 1000
"""Maximum number of findings that are read from one log."""
_READ = 1024**2
"""Maximum number of bytes that are read at the end of a log."""
_LONGEST = 2000
"""Maximum number of characters of a log's line that is examined."""
_TEXT = 500
"""Maximum number of characters of a finding's text."""
_PATH = r"(?P<path>[^\s:(),'\"<>|][^:(),'\"<>|]{0,250})"
_PLAIN = re.compile(_PATH + r":(?P<line>\d{1,7})(?::(?P<column>\d{1,5}))?:? +(?P<text>\S.*)")
_BRACKETS = re.compile(_PATH + r"\((?P<line>\d{1,7})(?:,(?P<column>\d{1,5}))?\): *(?P<text>\S.*)")
_ARROW = re.compile(r" *--> " + _PATH + r":(?P<line>\d{1,7})(?::(?P<column>\d{1,5}))?")


@dataclass(frozen=True)
class Finding:
    """A complaint about one line of a file."""

    worker: WorkerView
    rule: str
    """Name of the check that found the problem, or the worker's task."""
    path: str
    """Path relative to the repository's top directory."""
    line: int
    column: int | None
    text: str
    level: Level
    is_failure: bool = True
    """Whether the check or the task failed; False for a finding of a check that passed."""
    is_result: bool = False
    """Whether the finding is a result in a SARIF file."""

    @property
    def fingerprint(self) -> str:
        """Hash that identifies the finding, and does not change when its line moves."""
        parts = (self.rule, self.path, self.text)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def findings(report: RunReport, unread: Counter[str] | None = None) -> list[Finding]:
    """Return the findings of all ended workers, those of unsuccessful workers first.

    Args:
        report: The run.
        unread: Gets what SARIF files contain beside that, and how often.
    """
    good = (worker for worker in report.workers if worker.status is Status.SUCCESS)
    workers = (*report.bad, *good)
    return [finding for worker in workers for finding in findings_of(report, worker, unread)]


def findings_of(
    report: RunReport, worker: WorkerView, unread: Counter[str] | None = None
) -> list[Finding]:
    """Return the findings of one worker, those of failed checks first."""
    found: dict[tuple[str, str, int, str], Finding] = {}
    unread = Counter() if unread is None else unread
    for finding in _of_worker(worker, unread):
        # protection: findings-of-files-that-are-not-there-are-dropped
        if _is_there(report, worker, finding.path):
            found.setdefault((finding.rule, finding.path, finding.line, finding.text), finding)
        elif finding.is_result:
            unread["results in files that the repository does not have"] += 1
    return list(found.values())


def _of_worker(worker: WorkerView, unread: Counter[str]) -> Iterator[Finding]:
    for check in sorted(worker.checks, key=lambda check: check.passed):
        found = list(_of_check(worker, check, unread))
        if len(found) > MOST:
            unread[f"results of a check after its first {MOST}"] += len(found) - MOST
        yield from found[:MOST]
    if not worker.checks and worker.status not in (None, Status.SUCCESS):
        for stream in ("stdout", "stderr"):
            log, rule = worker.directory / f"{stream}.log", one_line(worker.spec.task, limit=100)
            yield from islice(_parse(tail(log, most=_READ), worker, rule), MOST)


def _of_check(worker: WorkerView, check: CheckResult, unread: Counter[str]) -> Iterator[Finding]:
    rule, log = one_line(check.name, limit=100), Path(check.log)
    written = findings_file(log)
    if written.exists():
        for place in read_sarif(written, unread):
            path = _path(place.path)
            if path is not None:
                yield Finding(
                    worker=worker,
                    rule=f"{rule}: {one_line(place.rule, limit=100)}",
                    path=path,
                    line=place.line,
                    column=place.column,
                    text=one_line(place.text, limit=_TEXT),
                    level=place.level,
                    is_failure=not check.passed,
                    is_result=True,
                )
            else:
                unread["results outside of the repository"] += 1
    elif not check.passed and worker.status not in (None, Status.SUCCESS):
        yield from _parse(tail(log, most=_READ), worker, rule)


def _parse(log: str, worker: WorkerView, rule: str) -> Iterator[Finding]:
    before = ""
    for line in lines_of_output(log):
        text, before = before, line.strip() or before
        if len(line) > _LONGEST:
            continue
        match = _PLAIN.match(line) or _BRACKETS.match(line) or _ARROW.fullmatch(line)
        if match is None:
            continue
        said = match.groupdict().get("text") or text
        path, column = _path(match["path"]), match["column"]
        if path is None or int(match["line"]) == 0:
            continue
        yield Finding(
            worker=worker,
            rule=rule,
            path=path,
            line=int(match["line"]),
            column=int(column) if column and int(column) else None,
            text=one_line(said, limit=_TEXT),
            level="warning" if worker.status is Status.PARTIAL else "error",
        )


def _path(text: str) -> str | None:
    """Return a path in normalised form; None for a path that cannot be in the repository."""
    path = PurePosixPath(text.strip())
    if path.is_relative_to(WORKSPACE):
        path = path.relative_to(WORKSPACE)
    parts = path.parts
    # protection: findings-outside-of-repository-are-dropped
    if path.is_absolute() or not parts or ".." in parts or ".git" in parts:
        return None
    return str(path)


def _is_there(report: RunReport, worker: WorkerView, path: str) -> bool:
    """Return whether a path names a file that the worker changed, or another file of the base."""
    if worker.result and path in worker.result.files_modified:
        return True
    try:
        return (report.top / path).is_file()
    except (OSError, ValueError):
        return False
