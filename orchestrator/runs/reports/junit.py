"""Render a run as JUnit XML: a test case for each worker, check of a commit, and merge.

Programs that read JUnit XML differ, and do not document all that they read. The report relies on
these facts:

- GitLab shows `classname` as the suite, takes the text of `failure`, `error` and `skipped` rather
  than their attributes, and ignores a second case of the same name. It follows a link to a file,
  `[[ATTACHMENT|path]]`, only in `system-out`, which is never written.
- Jenkins takes a case to have started when the case before it in its suite ended, so each worker
  has a suite with a `timestamp`. The schema of its plugin `xunit` allows neither a `timestamp` nor
  `properties` in a case. It reads earlier attempts from `rerunFailure` and `flakyFailure`.
- xunit-viewer guesses the encoding, so the document is plain ASCII with character references.
- Names of test cases are the same in every run, so that CI systems can show their history.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.base.results import Reason, Status
from orchestrator.base.text.sanitize import one_line
from orchestrator.review.judging.junit_file import Room, WorkerTest, read_junit
from orchestrator.runs.reports.logs import output_tail, tail
from orchestrator.runs.reports.markup import escape
from orchestrator.runs.reports.model import ERRORS, RunReport
from orchestrator.state.record.states import RunState
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.worker.workspace.artifacts import collected

MOST = 20 * 1000**2
"""Maximum size of a report in bytes; GitLab reads files of less than 30 MB."""
_LONGEST = 4000
"""Maximum number of characters of a worker's output in a test case."""
_SHORTEST = 200
"""Maximum number of characters of a message, if the report is too large with longer messages."""
_UNNAMED = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Verdict:
    """The XML element of a test case that did not pass."""

    tag: str
    kind: str
    message: str
    text: str = ""


@dataclass(frozen=True)
class Case:
    """A test case."""

    suite: str
    name: str
    seconds: float
    verdict: Verdict | None = None
    attempts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Suite:
    """A worker with its checks, the run with its judgement and its merge, or a batch."""

    name: str
    seconds: float
    start: datetime | None
    properties: Mapping[str, str]
    cases: Sequence[Case]


def render(report: RunReport) -> str:
    """Return the report as JUnit XML of at most 20 MB."""
    return render_suites(_suite_of(report), report.duration, list(_suites(report)))


def render_suites(name: str, duration: float, suites: Sequence[Suite]) -> str:
    """Return suites of test cases as JUnit XML of at most 20 MB.

    Args:
        name: Name of all of them together.
        duration: Seconds that they took.
        suites: The suites.
    """
    counts = _counts([case for suite in suites for case in suite.cases])
    # The schema of Jenkins has no `skipped` here.
    sums = "".join(f' {name}="{count}"' for name, count in counts.items() if name != "skipped")
    head = f'name="{_attribute(name)}"{sums} time="{_seconds(duration)}"'
    longest = _LONGEST
    while True:
        body = "".join(_render_suite(suite, longest) for suite in suites)
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {head}>\n{body}</testsuites>\n'
        data = text.encode("ascii", "xmlcharrefreplace")
        if len(data) <= MOST or not longest:
            return data.decode("ascii")
        longest //= 2


def _render_suite(suite: Suite, longest: int) -> str:
    sums = "".join(f' {name}="{count}"' for name, count in _counts(suite.cases).items())
    start = ""
    if suite.start is not None:
        start = f' timestamp="{suite.start.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"'
    head = f'name="{_attribute(suite.name)}"{sums} time="{_seconds(suite.seconds)}"{start}'
    rows = "".join(
        f'<property name="{name}" value="{_attribute(value)}"/>\n'
        for name, value in suite.properties.items()
    )
    properties = f"<properties>\n{rows}</properties>\n" if rows else ""
    cases = []
    for case in suite.cases:
        verdict = _element(case.verdict, longest) if case.verdict else ""
        attempts = "".join(_element(attempt, longest) for attempt in case.attempts)
        cases.append(
            f'<testcase classname="{_attribute(case.suite)}" name="{_attribute(case.name)}" '
            f'time="{_seconds(case.seconds)}">\n{verdict}{attempts}</testcase>\n'
        )
    return f"<testsuite {head}>\n{properties}{''.join(cases)}</testsuite>\n"


def _counts(cases: Sequence[Case]) -> dict[str, int]:
    tags = [case.verdict.tag for case in cases if case.verdict]
    return {
        "tests": len(cases),
        "failures": tags.count("failure"),
        "errors": tags.count("error"),
        "skipped": tags.count("skipped"),
    }


def _suite_of(report: RunReport) -> str:
    return f"orchestrator.{_plain(report.name or 'parallel')}"


def _plain(name: str) -> str:
    """Return a name without dots, which separate packages, and without special characters."""
    return _UNNAMED.sub("-", name).strip("-") or "run"


def _suites(report: RunReport) -> Iterator[Suite]:
    name = _suite_of(report)
    properties = {
        "run_id": report.run_id,
        "state": report.state.value,
        "base": report.base,
        "engine": report.engine,
        "slots": str(report.slots),
        **({"cost": f"{report.cost:.6f}"} if report.cost_known else {}),
        **({"tokens": str(report.tokens)} if report.tokens is not None else {}),
    }
    cases = [*_judgement_cases(report), *_merge_cases(report)]
    yield Suite(name, report.duration, report.started_at, properties, cases)
    for worker in report.workers:
        verdict = _verdict(report, worker)
        earlier = "rerun" if verdict and verdict.tag != "skipped" else "flaky"
        attempts = []
        for result in worker.attempts:
            kind = (result.reason or result.status).value
            text = _output(Path(result.log)) if result.log else ""
            attempts.append(Verdict(f"{earlier}Failure", kind, result.message or kind, text))
        own = Case(name, worker.key, worker.seconds, verdict, tuple(attempts))
        yield Suite(
            name=f"{name}.{_plain(worker.key)}",
            seconds=worker.seconds,
            start=worker.started_at or (worker.phases[-1].end if worker.phases else None),
            properties=_properties(worker),
            cases=[own, *_check_cases(worker), *_test_cases(worker, report)],
        )


def _verdict(report: RunReport, worker: WorkerView) -> Verdict | None:
    result = worker.result
    if result is None and report.state is RunState.DIED:
        message = "the run's process died before the worker ended"
        return Verdict("error", "died", message, _output(worker.directory))
    if result is None:
        return Verdict("skipped", "unfinished", f"the worker is not done: {worker.state.value}")
    if result.status is Status.SUCCESS:
        unneeded = Verdict("skipped", "not_needed", result.message or "")
        return unneeded if result.never_ran else None
    kind = (result.reason or result.status).value
    message = result.message or kind
    if worker.key not in (worker.name, f"worker-{worker.worker_id}"):
        # The name of the test case does not have the worker's number.
        message = f"{worker.title}: {message}"
    if result.never_ran or result.reason is Reason.CANCELLED:
        return Verdict("skipped", kind, message)
    tag = "error" if result.reason in ERRORS else "failure"
    return Verdict(tag, kind, message, _output(worker.directory))


def _output(directory: Path) -> str:
    # Four bytes a character at most.
    return output_tail(directory, most=4 * _LONGEST)[-_LONGEST:]


def _check_cases(worker: WorkerView) -> Iterator[Case]:
    # The checks of the last attempt only: earlier attempts have no results of checks.
    seen: dict[str, int] = {}
    for check in worker.checks:
        number = seen[check.name] = seen.get(check.name, 0) + 1
        verdict = None
        if not check.passed:
            kind = "check_failed" if check.exit_code else "check_error"
            text = tail(Path(check.log), most=4 * _LONGEST)[-_LONGEST:]
            verdict = Verdict("failure", kind, check.message or kind, text)
        yield Case(
            suite=f"orchestrator.{_plain(worker.key)}.checks",
            name=check.name if number == 1 else f"{check.name} ({number})",
            seconds=check.duration,
            verdict=verdict,
        )


def _test_cases(worker: WorkerView, report: RunReport) -> Iterator[Case]:
    """Yield the tests in a worker's own JUnit files; other workers may have run the same tests."""
    key = _plain(worker.key)
    seen: dict[tuple[str, str], int] = {}
    if not report.junit:
        return
    for found in read_tests(worker.directory, report.junit, workers=len(report.workers)):
        if isinstance(found, str):
            problem = Verdict("error", "unusable_file", found)
            yield Case(f"orchestrator.{key}.tests", one_line(found, limit=200), 0.0, problem)
            continue
        for test in found:
            suite = f"{key}.{test.suite}" if test.suite else key
            number = seen[suite, test.name] = seen.get((suite, test.name), 0) + 1
            name = test.name if number == 1 else f"{test.name} ({number})"
            tag = {"failed": "failure", "skipped": "skipped"}.get(test.outcome)
            kind = "test_failed" if tag == "failure" else "skipped"
            verdict = Verdict(tag, kind, test.message or kind, test.text) if tag else None
            yield Case(suite, name, test.seconds, verdict)


def _judgement_cases(report: RunReport) -> Iterator[Case]:
    """Yield test cases for each candidate: one for each check, and one for its changes of tests."""
    candidates = report.judgement.ranking if report.judgement else ()
    not_counted = report.judgement.unstable if report.judgement else ()
    keys = {(report.run_id, worker.worker_id): worker.key for worker in report.workers}
    # Their places differ from run to run, their numbers have the order of the candidates.
    ordered = sorted(candidates, key=lambda candidate: (candidate.run_id, candidate.worker_id))
    for number, candidate in enumerate(ordered, start=1):
        key = keys.get((candidate.run_id, candidate.worker_id), f"candidate-{number}")
        suite = f"orchestrator.{_plain(key)}.judgement"
        for check in candidate.verdicts:
            tag = "error" if check.verdict == "no_verdict" else "failure"
            tag = "skipped" if check.command in not_counted else tag
            broken = "\n".join(one_line(name) for name in check.broken)
            found = Verdict(tag, check.verdict, check.verdict.replace("_", " "), broken)
            yield Case(suite, check.command, 0.0, None if check.passed else found)
        flags = [f"{flag.flag}: {one_line(flag.message)}" for flag in candidate.flags if flag.out]
        message = "a finding excludes the candidate"
        out = Verdict("failure", "excluded", message, "\n".join(flags)) if candidate.out else None
        yield Case(suite, "treatment of the tests", 0.0, out)


_NOT_MERGED = frozenset({"failed", "stopped"})
"""Reasons why a worker was not merged that are not problems of the worker's own branch."""


def _merge_cases(report: RunReport) -> Iterator[Case]:
    merged, keys = report.merged, {worker.worker_id: worker.key for worker in report.workers}
    if merged is None:
        return
    left = {entry.worker_id: entry for entry in merged.left}
    for number in sorted({*merged.landed, *merged.contained, *left}):
        verdict = None
        if entry := left.get(number):
            tag = "skipped" if entry.reason in _NOT_MERGED else "failure"
            files = "\n".join(map(one_line, entry.files))
            verdict = Verdict(tag, entry.reason, entry.message, files)
        key = keys.get(number, f"worker-{number}")
        yield Case(f"{_suite_of(report)}.merge", key, 0.0, verdict)


def _properties(worker: WorkerView) -> dict[str, str]:
    result = worker.result
    used = {"cpu_time": result.cpu_time, "peak_memory": result.peak_memory} if result else {}
    return {
        "worker": str(worker.worker_id),
        "task": one_line(worker.spec.task, limit=_LONGEST),
        "model": worker.spec.model_name,
        "branch": worker.spec.branch,
        **({"commit": result.commit} if result and result.commit else {}),
        **({} if worker.cost is None else {"cost": f"{worker.cost:.6f}"}),
        **({"tokens": str(result.tokens)} if result and result.tokens is not None else {}),
        **{name: str(value) for name, value in used.items() if value is not None},
    }


def _element(verdict: Verdict, longest: int) -> str:
    # GitLab and some others show the text only, so it begins with the message.
    message = verdict.message[: max(longest, _SHORTEST)]
    shown = [message, *([verdict.text[-longest:]] if verdict.text and longest else [])]
    text = escape("\n\n".join(shown))
    head = f'type="{_attribute(verdict.kind)}" message="{_attribute(message)}"'
    if verdict.tag.startswith(("rerun", "flaky")):
        return f"<{verdict.tag} {head}><stackTrace>{text}</stackTrace></{verdict.tag}>\n"
    return f"<{verdict.tag} {head}>{text}</{verdict.tag}>\n"


def _attribute(text: str) -> str:
    return escape(one_line(text, limit=_LONGEST))


def _seconds(seconds: float) -> str:
    return f"{max(seconds, 0.0):.3f}"


_MOST_BYTES = 8 * 1024**2
"""Maximum size in bytes of a JUnit file."""
_MOST_FILES = 100
_MOST_READ = 32 * 1024**2
"""Maximum size in bytes of all JUnit files of one worker."""
_MOST_CASES = 20_000
"""Maximum number of tests of one worker."""
_CASES = 200_000
"""Number of tests that the workers of a run share, if each of them has many."""
_TEXT = 20 * 1000**2
"""Number of characters of messages and texts that the workers of a run share."""


def read_tests(
    root: Path, globs: Iterable[str], *, workers: int = 1
) -> Iterator[list[WorkerTest] | str]:
    """Yield the tests of each JUnit file of a worker, and what is wrong with a file.

    Messages and texts of tests are empty after the worker's share of them is used.

    Args:
        root: The worker's state directory.
        globs: Patterns of the paths of the files among the artifacts; `*` also matches `/`.
        workers: Number of workers of the run.
    """
    patterns, files, left = tuple(globs), 0, _MOST_READ
    room = Room(min(_MOST_CASES, _CASES // workers), _TEXT // workers)
    for path, file in collected(root):
        if not any(fnmatchcase(path, pattern) for pattern in patterns):
            continue
        files += 1
        if files > _MOST_FILES:
            yield f"there are more than {_MOST_FILES} JUnit files: the others were left out"
            return
        try:
            data = file.read(min(_MOST_BYTES, left) + 1)
            left -= len(data)
            # protection: size-of-all-junit-files-limited
            if left < 0:
                yield f"the JUnit files exceed {_MOST_READ // 1024**2} MiB: some were left out"
                return
        except OSError as error:
            yield f"{one_line(path)}: {error.strerror or 'unreadable'}"
            continue
        # protection: size-of-junit-file-limited
        if len(data) > _MOST_BYTES:
            yield f"{one_line(path)}: the file is larger than {_MOST_BYTES // 1024**2} MiB"
            continue
        tests, problem = read_junit(data, room)
        if tests or not problem:
            yield tests
        if problem:
            yield f"{one_line(path)}: {problem}"
