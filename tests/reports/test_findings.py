"""Tests of the search for findings in the output of checks and tasks."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.execution.output import findings_file
from orchestrator.reports.findings import findings
from orchestrator.reports.sarif_input import MOST_BYTES
from orchestrator.results import Reason, Status
from tests.support.reports import check, ended, ended_run, sarif_log

FAILED = (Status.FAILED,)


def found(tmp_path: Path, log: str, **rest: object) -> list[tuple[str, int, int | None, str]]:
    worker = ended(tmp_path, 1, Status.FAILED, reason=Reason.AGENT_FAILED, log=log, **rest)
    report = ended_run(tmp_path, [worker])
    return [(one.path, one.line, one.column, one.text) for one in findings(report)]


@pytest.fixture(autouse=True)
def _checkout(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a b.py").touch()
    (tmp_path / "a.c").touch()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a.c:3:7: error: expected ';'", ("a.c", 3, 7, "error: expected ';'")),
        ("a.c:3: warning: unused", ("a.c", 3, None, "warning: unused")),
        ("./a.c:3 bad", ("a.c", 3, None, "bad")),
        ("/workspace/a.c:3:7: bad", ("a.c", 3, 7, "bad")),
        ("src/a b.py:12:1: E1 bad", ("src/a b.py", 12, 1, "E1 bad")),
        ("a.c(3,7): error TS1: bad", ("a.c", 3, 7, "error TS1: bad")),
        ("F401 `os` is unused\n --> a.c:1:8\n  |", ("a.c", 1, 8, "F401 `os` is unused")),
        ("error[E1]: bad\n   --> a.c:2:9", ("a.c", 2, 9, "error[E1]: bad")),
        (
            "\x1b[01m\x1b[Ka.c:3:7:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kbad",
            ("a.c", 3, 7, "error: bad"),
        ),
        ("\x1b]8;;file:///a.c\x07a.c\x1b]8;;\x07:3:7: bad", ("a.c", 3, 7, "bad")),
    ],
)
def test_forms_of_findings(
    tmp_path: Path, line: str, expected: tuple[str, int, int | None, str]
) -> None:
    assert found(tmp_path, f"before\n{line}\nafter\n") == [expected]


@pytest.mark.parametrize(
    "line",
    [
        "/etc/passwd:1:1: x", "../a.c:1:1: x", "src/../../a.c:1:1: x", "missing.c:1:1: x",
        ".git/config:1:1: x", "a.c:0:1: x", "http://a.c:1: x", "src:1:1: x", "a.c:12345678: x",
        "a.c\0:1:1: x", "a.c:1:1:", "::error file=a.c,line=1::x", "a.c:1:1: " + "x" * 5000,
    ],
)  # fmt: skip
def test_other_lines_are_no_findings(tmp_path: Path, line: str) -> None:
    assert found(tmp_path, f"{line}\n") == []


def test_a_path_cannot_leave_the_repository_and_come_back(tmp_path: Path) -> None:
    assert found(tmp_path, f"../{tmp_path.name}/a.c:1:1: x\n") == []


def test_findings_stay_in_files_that_the_worker_did_not_change(tmp_path: Path) -> None:
    log = "a.c:1:1: old\nsrc/new.py:2:2: new\nsrc/missing.py:3:3: gone\n"
    expected = [("a.c", 1, 1, "old"), ("src/new.py", 2, 2, "new")]
    assert found(tmp_path, log, files_modified=["src/new.py"]) == expected
    assert found(tmp_path, log, files_modified=[".coverage"]) == expected[:1]


def test_a_worker_that_succeeded_has_no_findings(tmp_path: Path) -> None:
    assert findings(ended_run(tmp_path, [ended(tmp_path, 1, log="a.c:1:1: x\n")])) == []


def test_a_log_that_is_a_link_or_a_fifo_is_not_read(tmp_path: Path) -> None:
    worker = ended(tmp_path, 1, Status.FAILED, reason=Reason.OOM)
    (tmp_path / "log").write_text("a.c:1:1: x\n")
    (worker.directory / "stdout.log").unlink()
    (worker.directory / "stdout.log").symlink_to(tmp_path / "log")
    os.mkfifo(worker.directory / "stderr.log")
    assert findings(ended_run(tmp_path, [worker])) == []


def in_sarif(tmp_path: Path, text: str, *, passed: bool = False) -> list[tuple[object, ...]]:
    """Return the findings of a worker whose only check wrote this SARIF file."""
    done = check(tmp_path, "audit", passed=passed, log="a.c:9:9: a line of the log")
    findings_file(Path(done.log)).write_text(text)
    status = Status.SUCCESS if passed else Status.PARTIAL
    reason = None if passed else Reason.CHECKS_FAILED
    report = ended_run(tmp_path, [ended(tmp_path, 1, status, reason=reason, checks=[done])])
    return [(one.rule, one.path, one.line, one.level, one.text) for one in findings(report)]


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize("uri", ["a.c", "./a.c", "/workspace/a.c", "file:///workspace/a.c"])
def test_findings_of_a_sarif_file_replace_those_of_the_log(
    tmp_path: Path, uri: str, passed: bool
) -> None:
    log = sarif_log(("R1", uri, 3, "two\nlines"), ("R2", "src/a%20b.py", 4, "x"), level="note")
    assert in_sarif(tmp_path, log, passed=passed) == [
        ("audit: R1", "a.c", 3, "note", "two lines"),
        ("audit: R2", "src/a b.py", 4, "note", "x"),
    ]


@pytest.mark.parametrize(
    "left_out",
    [
        {"baselineState": "unchanged"}, {"suppressions": [{"kind": "inSource"}]},
        {"kind": "pass"}, {"level": "none"}, {"locations": []}, {"message": 3}, {"level": "evil"},
        {"locations": [{"physicalLocation": {"artifactLocation": {"uri": "missing.c"}}}]},
        {"locations": [{"physicalLocation": {"artifactLocation": {"uri": "../a.c"}}}]},
        {"locations": [{"physicalLocation": {"artifactLocation": {"uri": "http://h/a.c"}}}]},
        {"locations": [{"physicalLocation": {"artifactLocation": {"uri": "http://[a.c"}}}]},
        {"locations": [{"physicalLocation": {"artifactLocation": {"uri": "a.c"},
                                             "region": {"startLine": 0}}}]},
    ],
)  # fmt: skip
def test_results_that_are_no_new_findings_in_files_are_left_out(
    tmp_path: Path, left_out: dict[str, object]
) -> None:
    assert in_sarif(tmp_path, sarif_log(("R", "a.c", 1, "x"), **left_out)) == []


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", "{", '{"runs": 3}', '{"runs": [null, {"results": {}}]}',
             "[" * 100_000, '{"runs": [{"results": [1, null, {}]}]}', '{"runs": 1e999}'],
)  # fmt: skip
def test_a_broken_sarif_file_has_no_findings(tmp_path: Path, text: str) -> None:
    assert in_sarif(tmp_path, text) == []


def test_level_and_rule_of_a_result_may_be_those_of_its_rule(tmp_path: Path) -> None:
    log = json.loads(sarif_log(("", "a.c", 1, "x")))
    (run,) = log["runs"]
    run["tool"]["driver"]["rules"] = [{"id": "R7", "defaultConfiguration": {"level": "error"}}]
    run["results"][0] |= {"ruleIndex": 0}
    del run["results"][0]["ruleId"]
    assert in_sarif(tmp_path, json.dumps(log)) == [("audit: R7", "a.c", 1, "error", "x")]
    run["results"][0] |= {"ruleIndex": 7, "ruleId": "R8"}
    assert in_sarif(tmp_path, json.dumps(log)) == [("audit: R8", "a.c", 1, "warning", "x")]


_GROWTH = """
import sys
from pathlib import Path
from orchestrator.reports.sarif_input import read_sarif
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
before = peak()
found = sum(1 for _ in read_sarif(Path(sys.argv[1])))
print(peak() - before, found)
"""
"""Print the growth in KiB of a process that reads a SARIF file, and the number of findings."""


@pytest.mark.parametrize(
    ("head", "item", "tail"),
    [
        ('{"runs": [{"results": [', "{}", "]}]}"),
        ('{"runs": [{"tool": {"driver": {"rules": [', "{}", ']}}, "results": [{}]}]}'),
        ('{"runs": [', '{"":0}', "]}"),
    ],
)
def test_reading_a_hostile_sarif_file_takes_little_memory_and_time(
    tmp_path: Path, head: str, item: str, tail: str
) -> None:
    items = (MOST_BYTES - len(head) - len(tail)) // (len(item) + 1)
    path = tmp_path / "results.sarif"
    path.write_text(head + ",".join([item] * items) + tail)
    started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(
        [sys.executable, "-c", _GROWTH, str(path)], check=True, capture_output=True, text=True
    )
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - started < 5
    grown, found = done.stdout.split()
    assert int(found) == 0
    assert int(grown) < 110 * 1024
