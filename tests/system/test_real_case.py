"""A real project meets `eval`, `pick` and `merge --queue`: see tests/data/judging/README.md."""

import json
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.output.judgement_table import judgement_text
from orchestrator.review.judging.judgement import Judgement
from tests.docs.markdown import ROOT
from tests.support import real_case
from tests.support.real_case import AREAS, BEHAVIOUR, NAMES, SLOW, SUITE
from tests.support.repository import git

PAGE = ROOT / "docs" / "guides" / "judging.md"
QUIET = ("--agent-cli", "shell", "--network", "none", "--quiet", "--json")


def number(name: str) -> int:
    return NAMES.index(name) + 1


def judged(capsys: pytest.CaptureFixture[str], hidden: Path) -> Judgement:
    must_fix = [word for area in AREAS for word in ("--must-fix", real_case.test_of(area))]
    extra = ["--lint", SLOW, "--probe", BEHAVIOUR, "--instrument", "tools/*"]
    command = ["eval", *QUIET, "--models", ",".join(NAMES), *must_fix, "--must-fix", SUITE, *extra]
    code = run([*command, "--hidden", str(hidden), real_case.task()])
    judgement = Judgement.model_validate_json(capsys.readouterr().out)
    assert code == judgement.exit_code
    return judgement


@pytest.mark.docker
@pytest.mark.extra
def test_real_project_with_eight_candidates(
    repo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real_case.make_project(repo)
    monkeypatch.chdir(repo)
    judgement = judged(capsys, real_case.make_hidden(tmp_path / "hidden"))
    by_name = {one.model: one for one in judgement.ranking}
    assert judgement.picked == number("right")
    assert [one.model for one in judgement.ranking if one.passes] == [
        "right", "conflicts", "slow",
    ]  # fmt: skip
    assert by_name["slow"].lint == 1
    assert by_name["hardcodes"].hidden == "fail"
    assert [one.passed for one in by_name["partly"].verdicts] == [True, True, *[False] * 4]
    out = {name: [flag.flag for flag in one.flags if flag.out] for name, one in by_name.items()}
    assert {name: kinds for name, kinds in out.items() if kinds} == {
        "edits": ["tests_weakened"], "deletes": ["tests_removed"], "idle": ["empty"],
    }  # fmt: skip
    assert run(["pick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["landed"] == [number("right")]
    queue = ["--check", SUITE, "--check", f'test -z "$({SLOW})"']
    assert run(["merge", "--queue", *queue, "--json"]) == 1
    merged = json.loads(capsys.readouterr().out)
    left = {NAMES[one["worker_id"] - 1]: one["reason"] for one in merged["left"]}
    assert left == {
        "edits": "excluded", "deletes": "excluded", "hardcodes": "conflict",
        "conflicts": "conflict", "slow": "checks_failed",
    }  # fmt: skip
    # The last two candidates differ in their durations only.
    page, text = PAGE.read_text(), judgement_text(judgement)
    assert [line for line in text.splitlines()[:7] if line not in page] == [], text
    assert "def __update" in git(repo, "show", "HEAD:src/cachetools/__init__.py")
