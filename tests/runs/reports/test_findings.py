"""Tests of the search for findings in the output of checks and tasks."""

import json
import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.base.results import Reason, Status
from orchestrator.runs.reports.findings import findings
from orchestrator.runs.reports.sarif import render
from orchestrator.runs.reports.sarif_input import MOST_BYTES
from orchestrator.sandbox.supervision.output import findings_file
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


WEB = {"originalUriBaseIds": {"WEB": {"uri": "web/", "uriBaseId": "ROOT"},
                              "ROOT": {"uri": "file:///workspace/"}}}  # fmt: skip
RULES = [{"id": "R1", "defaultConfiguration": {"level": "error"}},
         {"id": "R2", "defaultConfiguration": {"level": "evil"},
          "messageStrings": {"m": {"text": "{0} is {1}, {{x}} {9}"}}}]  # fmt: skip


def sarif(artifact: object, *, region: object = None, run: object = None, **rest: object) -> str:
    """Return a SARIF file with a finding in a file."""
    log = json.loads(sarif_log(("R0", "x", 1, "bad"), **rest))
    (found,) = log["runs"]
    if "locations" not in rest:
        place = {"artifactLocation": artifact, "region": region}
        found["results"][0]["locations"] = [{"physicalLocation": place}]
    found |= run or {}
    return json.dumps(log)


@pytest.mark.parametrize(
    ("artifact", "run", "path"),
    [
        ({"uri": "a.c", "uriBaseId": "WEB"}, WEB, "web/a.c"),
        ({"uri": "../a.c", "uriBaseId": "WEB"}, WEB, "a.c"),
        ({"uri": "/workspace/a.c", "uriBaseId": "WEB"}, WEB, "a.c"),
        ({"uri": "a.c", "uriBaseId": "UNKNOWN"}, WEB, "a.c"),
        ({"uri": "a.c", "uriBaseId": "%SRCROOT%"}, {}, "a.c"),
        ({"uri": "a.c", "uriBaseId": "A"}, {"originalUriBaseIds": {"A": {"uri": "file:///"}}},
         "a.c"),
        ({"uri": "a.c", "uriBaseId": "A"},
         {"originalUriBaseIds": {"A": {"uri": "file:///workspace/web"}}}, "web/a.c"),
        ({"uri": "a.c", "uriBaseId": "A"}, {"originalUriBaseIds": {"A": {"uriBaseId": "A"}}},
         "a.c"),
        ({"uri": "a.c", "uriBaseId": "A"}, {"originalUriBaseIds": {"A": 3}}, "a.c"),
        ({"index": 1}, {"artifacts": [{}, {"location": {"uri": "a.c", "uriBaseId": "WEB"}}], **WEB},
         "web/a.c"),
        ({"uri": "a.c", "index": 0}, {"artifacts": [{"location": {"uri": "web/a.c"}}]}, "a.c"),
        ({"uri": "src\\a%20b.py"}, {}, "src/a b.py"),
        ({"uri": "src/../a.c"}, {}, "a.c"),
        ({"uri": "file://localhost/workspace/a.c"}, {}, "a.c"),
        ({"uri": "file:/workspace/./a.c"}, {}, "a.c"),
        ({"uri": "a.c", "uriBaseId": None, "index": None}, {"artifacts": None}, "a.c"),
    ],
)  # fmt: skip
def test_file_of_a_result_is_the_one_that_the_tool_means(
    tmp_path: Path, artifact: object, run: object, path: str
) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "a.c").touch()
    assert [one[1] for one in in_sarif(tmp_path, sarif(artifact, run=run))] == [path]


LOST: dict[str, tuple[str, str]] = {
    "another host": (sarif({"uri": "file://host/workspace/a.c"}), "outside of the repository"),
    "another directory": (sarif({"uri": "file:///home/a.c"}), "outside of the repository"),
    "another base": (
        sarif({"uri": "a.c", "uriBaseId": "A"},
              run={"originalUriBaseIds": {"A": {"uri": "file:///home/x/"}}}),
        "outside of the repository"),
    "Windows": (sarif({"uri": "C:\\work\\a.c"}), "outside of the repository"),
    "above": (sarif({"uri": "../a.c"}), "outside of the repository"),
    "git": (sarif({"uri": ".git/config"}), "outside of the repository"),
    "no such file": (sarif({"uri": "missing.c"}), "in files that the repository does not have"),
    "no location": (sarif({}, locations=[]), "without a file"),
    "logical location": (
        sarif({}, locations=[{"logicalLocations": [{"name": "f"}]}]), "without a file"),
    "no such artifact": (sarif({"index": 7}), "outside of the repository"),
    "a wrong type": (sarif({"uri": 3}), "not valid"),
    "a wrong line": (sarif({"uri": "a.c"}, region={"startLine": 0}), "not valid"),
    "a file of results": (
        sarif({"uri": "a.c"}, run={"externalPropertyFileReferences": {}, "results": []}),
        "other files with results"),
    "no JSON": ("{", "too large or no JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "why"), LOST.values(), ids=LOST)
def test_no_result_is_lost_silently(tmp_path: Path, text: str, why: str) -> None:
    done = check(tmp_path, "audit", passed=True)
    findings_file(Path(done.log)).write_text(text)
    unread: Counter[str] = Counter()
    report = ended_run(tmp_path, [ended(tmp_path, 1, checks=[done])])
    assert findings(report, unread) == []
    ((what, number),) = unread.items()
    assert why in what
    assert number == 1
    (said,) = json.loads(render(report))["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert said["message"]["text"] == f"not read: 1 {what}"


@pytest.mark.parametrize(
    ("rest", "run", "expected"),
    [
        ({"ruleIndex": None, "kind": None, "suppressions": None, "baselineState": None,
          "level": None, "rank": None}, {}, ("R0", "warning", "bad")),
        ({"suppressions": [{"kind": "external", "status": "rejected"}]}, {},
         ("R0", "warning", "bad")),
        ({"suppressions": [{"kind": "inSource"}, {"status": "underReview"}]}, {},
         ("R0", "warning", "bad")),
        ({"suppressions": []}, {}, ("R0", "warning", "bad")),
        ({"suppressions": [{"kind": "external", "status": "accepted"}]}, {}, None),
        ({"suppressions": [{}]}, {}, None),
        ({"kind": "notApplicable"}, {}, None),
        ({"kind": "review", "level": "none"}, {}, ("R0", "note", "bad")),
        ({"ruleId": "R1"}, {}, ("R1", "error", "bad")),
        ({"ruleId": "R1/sub"}, {}, ("R1/sub", "error", "bad")),
        ({"ruleId": None, "rule": {"index": 0}}, {}, ("R1", "error", "bad")),
        ({"ruleId": "R1", "ruleIndex": 1}, {}, ("R1", "error", "bad")),
        ({"ruleId": "R2"}, {}, ("R2", "warning", "bad")),
        ({"ruleId": "X", "rule": {"id": "X", "index": 0, "toolComponent": {"index": 0}}}, {},
         ("X", "note", "bad")),
        ({"ruleId": "R1"}, {"invocations": [{"ruleConfigurationOverrides": [
            {"descriptor": {"index": 0}, "configuration": {"level": "note"}}]}]},
         ("R1", "note", "bad")),
        ({"ruleId": "R1", "provenance": {"invocationIndex": 1}}, {"invocations": [{}, {
            "ruleConfigurationOverrides": [
                {"descriptor": {"id": "R1"}, "configuration": {"level": "note"}}]}]},
         ("R1", "note", "bad")),
        ({"ruleId": "R1", "level": "warning"}, {}, ("R1", "warning", "bad")),
        ({"ruleId": "R2", "message": {"id": "m", "arguments": ["it", 3]}}, {},
         ("R2", "warning", "it is 3, {x} {9}")),
        ({"message": {"id": "g", "arguments": []}}, {}, ("R0", "warning", "of the tool")),
        ({"message": {"markdown": "*bad*"}}, {}, ("R0", "warning", "*bad*")),
        ({"message": {"id": "none"}}, {}, ("R0", "warning", "R0")),
        ({"message": None, "ruleId": None}, {}, ("", "warning", "finding")),
        ({"locations": [], "analysisTarget": {"uri": "a.c"}}, {}, ("R0", "warning", "bad")),
        ({"locations": [{"logicalLocations": []}, {"physicalLocation": {"artifactLocation":
            {"uri": "a.c"}}}], "relatedLocations": [{"id": 1}]}, {}, ("R0", "warning", "bad")),
    ],
)  # fmt: skip
def test_level_rule_and_text_of_a_result(
    tmp_path: Path, rest: dict[str, object], run: object, expected: tuple[str, ...] | None
) -> None:
    driver = {"rules": RULES, "globalMessageStrings": {"g": {"text": "of the tool"}}}
    extension = {"rules": [{"id": "X", "defaultConfiguration": {"level": "note"}}]}
    tool = {"tool": {"driver": driver, "extensions": [extension]}, **(run or {})}  # type: ignore[dict-item]
    found = in_sarif(tmp_path, sarif({"uri": "a.c"}, run=tool, **rest))
    wanted = [expected] if expected else []
    assert [
        (rule.removeprefix("audit: "), level, text) for rule, _, _, level, text in found
    ] == wanted  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "region", [None, {"startColumn": 0}, {"startLine": None}, {"startColumn": -1}]
)
def test_place_without_a_column(tmp_path: Path, region: object) -> None:
    assert in_sarif(tmp_path, sarif({"uri": "a.c"}, region=region))[0][2] == 1


@pytest.mark.parametrize("cut", [1, 2, 3, 100, 300])
def test_results_before_a_break_are_read(tmp_path: Path, cut: int) -> None:
    rules = [("R", "a.c", n, "x") for n in range(1, 9)]
    text = sarif_log(*rules)
    (one,) = [sarif_log(rules[0])]
    found = in_sarif(tmp_path, text[:-cut])
    assert [line for _, _, line, _, _ in found] == [*range(1, len(found) + 1)]
    assert len(found) >= 8 - cut // 100 - 1, one


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_encodings_of_sarif_files(tmp_path: Path, encoding: str) -> None:
    done = check(tmp_path, "audit", passed=True)
    findings_file(Path(done.log)).write_bytes(sarif({"uri": "a.c"}).encode(encoding))
    assert len(findings(ended_run(tmp_path, [ended(tmp_path, 1, checks=[done])]))) == 1


def test_large_file_has_the_findings_of_its_beginning(tmp_path: Path) -> None:
    results = json.loads(sarif({"uri": "a.c"}))["runs"][0]["results"]
    padded = [{**results[0], "properties": {"x": "y" * 200_000}}] * 40
    for n, one in enumerate(padded, start=1):
        padded[n - 1] = {**one, "message": {"text": f"bad {n}"}}
    found = in_sarif(tmp_path, sarif({}, run={"results": padded}))
    assert [text for *_, text in found] == [f"bad {n}" for n in range(1, len(found) + 1)]
    assert len(found) == MOST_BYTES // 200_000


_GROWTH = """
import sys
from pathlib import Path
from orchestrator.runs.reports.sarif_input import read_sarif
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
