"""Tests of reports for GitLab."""

import json
import re
from pathlib import Path

import jsonschema

from orchestrator.base.results import Reason, Status
from orchestrator.runs.reports import gitlab
from tests.support.ci_parsers import HOSTILE_LINES, commands_in
from tests.support.reports import RUN_ID, check, ended, ended_run, three_workers

CODE_QUALITY = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "additionalProperties": False,
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "minLength": 1},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": "^[^/.]"},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}
"""The fields of a code quality report that GitLab documents."""


def test_findings_have_fingerprints_that_survive_a_move(tmp_path: Path) -> None:
    def issues(line: int) -> list[dict[str, object]]:
        log = f"a.py:{line}:1: E1 bad\na.py:{line + 1}:1: E1 bad\nb.py:1:1: E2 worse\n"
        worker = ended(
            tmp_path, 1, Status.PARTIAL, reason=Reason.CHECKS_FAILED,
            files_modified=["a.py", "b.py"],
            checks=[check(tmp_path, "lint", passed=False, log=log)],
        )  # fmt: skip
        found = json.loads(gitlab.render_code_quality(ended_run(tmp_path, [worker])))
        jsonschema.validate(found, CODE_QUALITY)
        return list(found)

    before, after = issues(3), issues(30)
    assert [issue["fingerprint"] for issue in before] == [issue["fingerprint"] for issue in after]
    assert len({str(issue["fingerprint"]) for issue in before}) == 3
    assert before[0]["description"] == "worker 1: E1 bad"
    assert before[0]["location"] == {"path": "a.py", "lines": {"begin": 3}}


def test_hostile_output_is_valid_and_no_command(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    text = "".join(f"a.py:1:1: {line[:500]}\n{line[:500]}\n" for line in HOSTILE_LINES)
    shown = gitlab.render_code_quality(three_workers(tmp_path, text=text, task=text))
    jsonschema.validate(json.loads(shown), CODE_QUALITY)
    assert len(json.loads(shown)) > len(HOSTILE_LINES)
    assert commands_in(shown) == []


def test_variables_are_single_lines_with_valid_names(tmp_path: Path) -> None:
    text = gitlab.render_dotenv(three_workers(tmp_path, text="a\nPATH=/evil", task="b\nPATH=/evil"))
    for line in text.splitlines():
        assert re.fullmatch(r"ORCHESTRATOR_[A-Z_]+=[A-Za-z0-9.-]*", line)
    assert f"ORCHESTRATOR_RUN_ID={RUN_ID}\nORCHESTRATOR_STATUS=failed\n" in text
