"""Tests of SARIF reports, by the rules of the specification that readers depend on."""

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from jsonschema import Draft202012Validator

from orchestrator.base.results import Reason, Status
from orchestrator.review.judging.judgement import FlagKind
from orchestrator.runs.reports import sarif
from tests.support.ci_parsers import HOSTILE_LINES, commands_in
from tests.support.reports import check, ended, ended_run, judged, three_workers

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
RESULT = {
    "type": "object",
    "required": ["ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"],
    "properties": {
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": TEXT,
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
        "locations": {
            "type": "array",
            "minItems": 1,
            "items": {
                "required": ["physicalLocation"],
                "properties": {
                    "physicalLocation": {
                        "required": ["artifactLocation", "region"],
                        "properties": {
                            "artifactLocation": {
                                "properties": {
                                    "uri": {"type": "string", "pattern": "^[A-Za-z0-9_.~%/-]+$"}
                                }
                            },
                            "region": {
                                "properties": {
                                    "startLine": {"type": "integer", "minimum": 1},
                                    "startColumn": {"type": "integer", "minimum": 1},
                                }
                            },
                        },
                    }
                },
            },
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "required": ["tool", "results", "automationDetails"],
                "properties": {"results": {"type": "array", "items": RESULT}},
            },
        },
    },
}

# The schema of the specification, from the npm package `@microsoft/sarif-multitool` 5.7.0 (MIT).
DATA = Path(__file__).parents[2] / "data" / "sarif-2.1.0.json"
OASIS = Draft202012Validator(json.loads(DATA.read_text("utf-8-sig")))


def rendered(text: str) -> Any:
    log = json.loads(text)
    jsonschema.validate(log, SCHEMA)
    errors = [error.message for error in OASIS.iter_errors(log)]
    assert errors == []
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    return run


def with_findings(tmp_path: Path, *lines: str) -> Any:
    worker = ended(
        tmp_path, 1, Status.PARTIAL, reason=Reason.CHECKS_FAILED, files_modified=["a b.py"],
        checks=[check(tmp_path, "ruff check", passed=False, log="\n".join(lines))],
    )  # fmt: skip
    return rendered(sarif.render(ended_run(tmp_path, [worker])))


def test_a_finding_is_a_result_with_its_place(tmp_path: Path) -> None:
    run = with_findings(tmp_path, "a b.py:3:7: F401 unused")
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("ruff-check", "warning")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 3, "startColumn": 7}
    assert run["automationDetails"] == {"id": "orchestrator/parallel/"}
    (moved,) = with_findings(tmp_path, "a b.py:30:7: F401 unused")["results"]
    assert moved["partialFingerprints"] == result["partialFingerprints"]


def test_more_results_than_readers_take_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sarif, "MOST", 3)
    run = with_findings(tmp_path, *(f"a b.py:{n}:1: x" for n in range(1, 10)))
    assert len(run["results"]) == 3
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["message"]["text"] == "6 more findings are not listed"


def test_hostile_output_is_valid_and_no_command(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    text = "".join(f"a.py:1:1: {line[:300]}\n" for line in HOSTILE_LINES)
    shown = sarif.render(three_workers(tmp_path, text=text, task=text))
    assert len(rendered(shown)["results"]) > 20
    assert commands_in(shown) == []


def test_findings_about_candidates_have_rules_of_their_own(tmp_path: Path) -> None:
    run = rendered(sarif.render(ended_run(tmp_path, [ended(tmp_path, 1)], judgement=judged())))
    found = [(one["ruleId"], one["level"], one["message"]["text"]) for one in run["results"]]
    assert found == [
        ("ORC-A002", "error", "worker 3: a flag"), ("ORC-A009", "note", "worker 3: a flag"),
    ]  # fmt: skip
    (place,) = run["results"][1]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "a%20b.py"
    assert place["physicalLocation"]["region"] == {"startLine": 7}
    (whole,) = run["invocations"][0]["toolExecutionNotifications"]
    assert whole == {"level": "error", "message": {"text": "ORC-A005 worker 3: a flag"}}
    assert {*get_args(FlagKind)} == {*sarif.FLAGS}
    assert len({rule for rule, _ in sarif.FLAGS.values()}) == len(sarif.FLAGS)


def test_what_excludes_a_whole_candidate_is_a_result_at_its_first_file(tmp_path: Path) -> None:
    worker = ended(tmp_path, 3, files_modified=["src/a.py", "b.py"])
    run = rendered(sarif.render(ended_run(tmp_path, [worker], judgement=judged())))
    (whole,) = [one for one in run["results"] if one["ruleId"] == "ORC-A005"]
    place = whole["locations"][0]["physicalLocation"]["artifactLocation"]
    assert (whole["level"], place["uri"]) == ("error", "src/a.py")
    assert run["invocations"][0]["toolExecutionNotifications"] == []
