"""Tests of reports for GitHub Actions."""

import random
from dataclasses import replace
from pathlib import Path

from orchestrator.base.results import Reason, Status
from orchestrator.runs.reports import github
from orchestrator.sandbox.supervision.output import findings_file
from tests.support.ci_parsers import HOSTILE_LINES, GitHubRunner
from tests.support.reports import (
    BASE,
    RUN_ID,
    check,
    decided,
    ended,
    ended_run,
    judged,
    sarif_log,
    three_workers,
)


def unescaped(text: str) -> str:
    """Return the data of a command as the runner reads it."""
    pairs = (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%"))
    for escaped, character in pairs:
        text = text.replace(escaped, character)
    return text


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """Return the name, the properties and the data of a command."""
    info, _, data = line.removeprefix("::").partition("::")
    name, _, rest = info.partition(" ")
    pairs = (pair.split("=", 1) for pair in rest.split(",") if pair)
    return name, {key: unescaped(value) for key, value in pairs}, unescaped(data)


def read_outputs(path: Path) -> dict[str, str]:
    """Read the outputs of a step as the runner does."""
    lines, found = iter(path.read_text().splitlines()), {}
    for line in lines:
        name, _, delimiter = line.partition("<<")
        value = []
        while (content := next(lines)) != delimiter:
            value.append(content)
        found[name] = "\n".join(value)
    return found


def test_the_runner_finds_only_our_commands(tmp_path: Path) -> None:
    text = "\n".join(line[:1000] for line in HOSTILE_LINES)
    lines = github.annotations(three_workers(tmp_path, text=text, task=text))
    runner = GitHubRunner()
    runner.read("\n".join(lines))
    assert {name for name, _ in runner.commands} == {"error", "warning"}
    assert len(runner.commands) == len(lines)
    assert runner.stops == 0


def test_texts_of_annotations_are_as_they_were(tmp_path: Path) -> None:
    source = random.Random(3)
    for _ in range(100):
        said = "".join(source.choices("a%:,%0A%25= éß*", k=30)).strip()
        worker = ended(tmp_path, 1, Status.FAILED, reason=Reason.OOM, message=said, name=None)
        (line,) = github.annotations(ended_run(tmp_path, [worker]))
        name, properties, data = parsed(line)
        assert (name, data) == ("error", said or "failed (oom)")
        assert properties == {"title": "worker 1: failed (oom)"}


def test_titles_of_annotations_cannot_add_properties(tmp_path: Path) -> None:
    key = "a,file=b::c%0A"
    worker = ended(tmp_path, 1, Status.FAILED, reason=Reason.OOM, message="m", name=key)
    (line,) = github.annotations(ended_run(tmp_path, [worker]))
    assert parsed(line) == ("error", {"title": f"{key}: failed (oom)"}, "m")


def test_at_most_ten_annotations_and_the_last_counts_the_rest(tmp_path: Path) -> None:
    failed = [ended(tmp_path, n, Status.FAILED, reason=Reason.OOM) for n in range(1, 31)]
    partial = [ended(tmp_path, n, Status.PARTIAL) for n in range(31, 43)]
    lines = [parsed(line) for line in github.annotations(ended_run(tmp_path, [*partial, *failed]))]
    assert [name for name, *_ in lines] == ["error"] * 10 + ["warning"] * 10
    assert lines[9][2] == "21 more problems: see the summary of the job"
    assert lines[19][2] == "3 more problems: see the summary of the job"
    assert lines[0][1]["title"] == "worker 1: failed (oom)"


def test_findings_of_a_failed_check_are_annotations_of_lines(tmp_path: Path) -> None:
    log = "src/a.py:3:7: F401 unused, really: `os`\nsrc/b.py:1:1: E999\n"
    worker = ended(
        tmp_path, 1, Status.PARTIAL, reason=Reason.CHECKS_FAILED, files_modified=["src/a.py"],
        checks=[check(tmp_path, "lint", passed=False, log=log)],
    )  # fmt: skip
    (line,) = github.annotations(ended_run(tmp_path, [worker]))
    title = "worker 1: partial (checks_failed)"
    place = {"file": "src/a.py", "line": "3", "col": "7", "title": title}
    assert parsed(line) == ("warning", place, "F401 unused, really: `os`")


def test_summary_is_appended_below_the_limit_of_a_step(tmp_path: Path) -> None:
    workers = [
        ended(tmp_path, n, Status.FAILED, reason=Reason.OOM, log="é" * 65_000) for n in range(1, 41)
    ]
    report, path = ended_run(tmp_path, workers), tmp_path / "summary.md"
    path.write_text("before\n")
    github.write_summary(report, path)
    assert path.read_text().startswith("before\n<!-- orchestrator:parallel -->")
    for _ in range(20):
        github.write_summary(report, path)
    assert 900_000 < path.stat().st_size <= github.MOST_OF_SUMMARY < 1024 * 1024


def test_outputs(tmp_path: Path) -> None:
    workers = [
        ended(tmp_path, 1, cost=0.5, cost_known=True),
        ended(tmp_path, 2, Status.TIMEOUT, reason=Reason.TIMEOUT, cost=0.25, cost_known=True),
    ]
    path = tmp_path / "outputs"
    github.write_outputs(ended_run(tmp_path, workers), path)
    assert read_outputs(path) == {
        "run-id": RUN_ID, "status": "timeout", "passed": "1", "failed": "1", "cost": "0.750000",
        "winner": "", "winner-commit": "",
    }  # fmt: skip


def test_the_best_candidate_is_an_output(tmp_path: Path) -> None:
    report = decided(tmp_path, text="x")
    found = github.outputs(report)
    assert (found["winner"], found["winner-commit"]) == ("1", BASE)
    undecided = replace(report, judgement=judged(decision="undecided", picked=None))
    assert github.outputs(undecided)["winner"] == ""


def test_findings_of_a_check_that_passed_do_not_hide_the_failure(tmp_path: Path) -> None:
    passed = check(tmp_path, "audit", passed=True)
    findings_file(Path(passed.log)).write_text(sarif_log(("R1", "a.py", 3, "careful")))
    worker = ended(
        tmp_path, 1, Status.FAILED, reason=Reason.OOM, message="no memory", checks=[passed],
        files_modified=["a.py"],
    )  # fmt: skip
    (line,) = github.annotations(ended_run(tmp_path, [worker]))
    assert parsed(line) == ("error", {"title": "worker 1: failed (oom)"}, "no memory")
