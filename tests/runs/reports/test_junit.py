"""Tests of JUnit reports, with ports of the rules of their readers."""

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml

from orchestrator.base.results import Reason, Status
from orchestrator.review.judging.judgement import CheckVerdict
from orchestrator.runs.reports import github, html, junit, markdown
from orchestrator.state.record.states import RunState, WorkerState
from tests.support.ci_parsers import HOSTILE_LINES, commands_in
from tests.support.junit_readers import gitlab_cases, jenkins_counts, problems
from tests.support.reports import (
    at,
    check,
    decided,
    ended,
    ended_run,
    every_status,
    judged,
    three_workers,
)


def test_every_reader_counts_the_same_cases(tmp_path: Path) -> None:
    text = junit.render(every_status(tmp_path, text="é\u2028\U0001f600"))
    assert text.isascii(), "readers guess the encoding"
    assert list(problems(ElementTree.fromstring(text))) == []
    shown = Counter(case.status for case in gitlab_cases(text))
    assert shown == {"success": 4, "failed": len(Reason) - 7 + 2, "error": 4, "skipped": 3}
    total: Counter[str] = Counter()
    for suite in JUnitXml.fromstring(text.encode()):
        sums = (suite.tests, suite.failures, suite.errors, suite.skipped)
        total.update(tests=suite.tests, failed=suite.failures, error=suite.errors)
        suite.update_statistics()
        assert sums == (suite.tests, suite.failures, suite.errors, suite.skipped)
    assert total == {
        "tests": shown.total(), "failed": shown["failed"], "error": shown["error"],
    }  # fmt: skip
    jenkins = jenkins_counts(text)
    failed = shown["failed"] + shown["error"]
    assert jenkins == {"passed": shown["success"], "failed": failed, "skipped": shown["skipped"]}


def test_tests_of_workers_are_added_with_unique_names(tmp_path: Path) -> None:
    workers = [ended(tmp_path, number, Status.SUCCESS) for number in (1, 2)]
    texts = (
        '<testsuite><testcase classname="a" name="t"/><testcase classname="a" name="t">'
        "<failure message='&lt;m&gt; ]]&gt;'>x</failure></testcase></testsuite>",
        "broken",
    )
    for worker, text in zip(workers, (texts[0], texts[0]), strict=True):
        for name, content in (("j.xml", text), ("k.xml", texts[1])):
            path = worker.directory / "artifacts" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    report = ended_run(tmp_path, workers)
    assert len(gitlab_cases(junit.render(report))) == 2
    text = junit.render(replace(report, junit=("*.xml",)))
    assert list(problems(ElementTree.fromstring(text))) == []
    found = Counter((case.suite, case.status) for case in gitlab_cases(text))
    for key in ("worker-1", "worker-2"):
        assert found[f"{key}.a", "success"] == found[f"{key}.a", "failed"] == 1
        assert found[f"orchestrator.{key}.tests", "error"] == 1
    assert jenkins_counts(text) == {"passed": 4, "failed": 4}


@pytest.mark.parametrize(
    ("reason", "tag"),
    [
        (Reason.OOM, "failure"), (Reason.TIMEOUT, "failure"), (Reason.ENGINE_ERROR, "error"),
        (Reason.SETUP_FAILED, "error"), (Reason.INTERNAL_ERROR, "error"),
        (Reason.DEPENDENCY, "skipped"), (Reason.CANCELLED, "skipped"), (Reason.CONFLICT, "skipped"),
    ],
)  # fmt: skip
def test_element_of_a_reason(tmp_path: Path, reason: Reason, tag: str) -> None:
    worker = ended(tmp_path, 1, Status.FAILED, reason=reason, message="why", log="printed")
    (case,) = ElementTree.fromstring(junit.render(ended_run(tmp_path, [worker]))).iter("testcase")
    (verdict,) = case
    assert (verdict.tag, verdict.attrib) == (tag, {"type": reason.value, "message": "why"})
    printed = "" if tag == "skipped" else "\n\nprinted"
    assert verdict.text == f"why{printed}"


def test_names_are_unique_and_the_same_in_every_run(tmp_path: Path) -> None:
    def names(first: int) -> list[tuple[str, str]]:
        checks = [check(tmp_path, name, passed=True) for name in ("lint", "lint", "a.b <c>")]
        workers = [
            ended(tmp_path, first, position=1, checks=checks),
            ended(tmp_path, first + 1, position=2),
        ]
        report = ended_run(tmp_path, workers, run_id=f"20261121-09300{first}-5f0c2a")
        cases = gitlab_cases(junit.render(report))
        return [(case.suite, case.name) for case in cases]

    assert names(1) == names(4) == [
        ("orchestrator.parallel", "worker-1"),
        ("orchestrator.worker-1.checks", "lint"),
        ("orchestrator.worker-1.checks", "lint (2)"),
        ("orchestrator.worker-1.checks", "a.b <c>"),
        ("orchestrator.parallel", "worker-2"),
    ]  # fmt: skip


def test_people_are_told_the_number_that_other_messages_have(tmp_path: Path) -> None:
    why = {"reason": Reason.OOM, "message": "no memory", "log": "src/a.py:3: error: bad"}
    report = ended_run(tmp_path, [
        ended(tmp_path, 14, Status.FAILED, position=1, **why),
        ended(tmp_path, 15, Status.FAILED, name="api", **why),
    ])  # fmt: skip
    shown = {case.name: case.output for case in gitlab_cases(junit.render(report))}
    assert shown.keys() == {"worker-1", "api"}
    assert "worker 14: no memory" in shown["worker-1"]
    assert "15" not in shown["api"]
    for text in (markdown.render(report), html.render(report), *github.annotations(report)[:1]):
        said = re.sub(r"<[^>]*>", "", text)
        assert "worker 14" in said
        assert not re.search(r"worker-1\b", said)


def test_each_worker_has_a_suite_with_its_start_and_its_properties(tmp_path: Path) -> None:
    workers = [ended(tmp_path, n, started_at=at(n)) for n in (1, 2, 3)]
    root = ElementTree.fromstring(junit.render(ended_run(tmp_path, workers)))
    assert root.attrib["time"] == root[0].attrib["time"] == "5.000"
    of_run, *of_workers = root
    starts = [suite.attrib["timestamp"] for suite in of_workers]
    assert starts == [f"2026-11-21T09:30:0{n}Z" for n in (1, 2, 3)]
    found = [suite.find("properties/property[@name='worker']") for suite in of_workers]
    assert [one.attrib["value"] for one in found if one is not None] == ["1", "2", "3"]
    assert of_run.find("properties/property[@name='run_id']") is not None


def test_workers_without_a_result(tmp_path: Path) -> None:
    worker = ended(tmp_path, 1, log="so far", result=None, state=WorkerState.RUNNING)
    for state, status in ((RunState.RUNNING, "skipped"), (RunState.DIED, "error")):
        report = ended_run(tmp_path, [worker], state=state, result=None)
        (case,) = gitlab_cases(junit.render(report))
        assert case.status == status
    assert case.output.endswith("so far")


def test_any_output_gives_well_formed_xml_without_commands(tmp_path: Path) -> None:
    source = random.Random(7)
    pieces = [
        "]]>", "<![CDATA[", "&amp;", "&", "<", ">", '"', "'", "\0", "\x1b[31m", "\r", "\n", "\t",
        "\ufffe", "\uffff", "\ud800", "\U0010ffff", "\x85", "\u2028", "é", "<?xml?>", "<!--", "-->",
        "##[error]", "::error::x", "--- x", "\n::add-mask::x", "\n+++ y",
        "[[ATTACHMENT|/etc/passwd]]",
    ]  # fmt: skip
    for _ in range(15):
        text = "".join(source.choices(pieces, k=60))
        shown = junit.render(three_workers(tmp_path, text=text, task=text))
        shown.encode()
        root = ElementTree.fromstring(shown)
        assert list(problems(root)) == []
        assert commands_in(shown) == []
        assert not list(root.iter("system-out"))


def test_hostile_lines_are_no_commands_in_the_file(tmp_path: Path) -> None:
    text = "\n".join(line[:1000] for line in HOSTILE_LINES)
    assert commands_in(junit.render(three_workers(tmp_path, text=text, task=text))) == []


def test_texts_are_shortened_to_the_size_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = every_status(tmp_path, text="é" * 5000)
    assert len(junit.render(report).encode()) > 300_000
    monkeypatch.setattr(junit, "MOST", 250_000)
    text = junit.render(report)
    assert len(text.encode()) <= 250_000
    assert len(gitlab_cases(text)) == len(gitlab_cases(junit.render(report)))


def test_judgements_and_merges_are_cases(tmp_path: Path) -> None:
    text = junit.render(decided(tmp_path, text="why"))
    assert text.isascii()
    assert list(problems(ElementTree.fromstring(text))) == []
    cases = gitlab_cases(text)
    assert len({(case.suite, case.name) for case in cases}) == len(cases)
    judgement = {
        (case.suite, case.name): case.status for case in cases if "judgement" in case.suite
    }
    tests = "treatment of the tests"
    assert judgement == {
        ("orchestrator.worker-1.judgement", "make test"): "success",
        ("orchestrator.worker-1.judgement", tests): "success",
        ("orchestrator.worker-2.judgement", "make test"): "failed",
        ("orchestrator.worker-2.judgement", tests): "success",
        ("orchestrator.worker-3.judgement", "make test"): "success",
        ("orchestrator.worker-3.judgement", tests): "failed",
    }
    merge = {case.name: case.status for case in cases if case.suite == "orchestrator.nightly.merge"}
    assert merge == {"worker-1": "success", "worker-2": "failed", "worker-3": "skipped"}


@pytest.mark.parametrize(("not_counted", "status"), [((), "failed"), (("make test",), "skipped")])
def test_unstable_check_is_skipped_only_if_the_base_is_to_blame(
    tmp_path: Path, not_counted: tuple[str, ...], status: str
) -> None:
    check = CheckVerdict(command="make test", verdict="unstable")
    candidate = judged().ranking[1].model_copy(update={"checks": (check,)})
    judgement = judged(ranking=(candidate,), picked=None, decision="none", unstable=not_counted)
    report = ended_run(tmp_path, [ended(tmp_path, 2)], judgement=judgement)
    cases = gitlab_cases(junit.render(report))
    assert [case.status for case in cases if case.name == "make test"] == [status]


def test_candidates_of_earlier_runs_have_names_without_ids(tmp_path: Path) -> None:
    earlier = judged().ranking[0].model_copy(update={"run_id": "20261120-093000-111111"})
    judgement = judged(ranking=(*judged().ranking[1:], earlier), picked=None)
    report = ended_run(tmp_path, [ended(tmp_path, n) for n in (2, 3)], judgement=judgement)
    suites = {case.suite for case in gitlab_cases(junit.render(report))}
    assert "orchestrator.candidate-1.judgement" in suites
    assert not any("2026" in suite for suite in suites)
