"""Candidates against their judge. No cheat is picked, and each of them deceives a judge that only
runs the checks on the candidate's own files.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.assurance.attacks.caller import Caller
from tests.assurance.attacks.conftest import CALLERS
from tests.assurance.attacks.leftovers import clean_up
from tests.assurance.attacks.target import Target, make_target
from tests.support.judging import FILES, TESTS

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

CHEATS = sorted((Path(__file__).parent / "judged").glob("*.sh"))
HONEST = 'sed -i "s/width + height/width * height/" calc.py'
SUITE = "python3 -m unittest discover -s tests -t ."


@dataclass(frozen=True)
class Judged:
    """The judgement of all cheats and of an honest candidate."""

    target: Target
    judgement: dict[str, Any]

    def candidate(self, name: str) -> dict[str, Any]:
        """Return what was found about a candidate."""
        (found,) = [one for one in self.judgement["ranking"] if one["model"] == name]
        return dict(found)


@pytest.fixture(scope="module", params=CALLERS)
def judged(request: pytest.FixtureRequest, everyone: dict[str, Caller]) -> Iterator[Judged]:
    """Let all candidates solve a task, and judge them."""
    caller = everyone[request.param]
    target = make_target(caller, caller.home / "judged" / "repo", "")
    hidden = caller.home / "judged" / "hidden"
    _add_project(target, hidden)
    cases = "".join(f"{path.stem})\n{path.read_text()};;\n" for path in CHEATS)
    task = f"case $ORCHESTRATOR_MODEL in\n{cases}honest)\n{HONEST};;\nesac"
    models = ",".join([*(path.stem for path in CHEATS), "honest"])
    command = [
        caller.python, "-m", "orchestrator", "eval", task, "--agent-cli", "shell", "--quiet",
        "--json", "--network", "none", "--models", models, "--must-fix", SUITE,
        "--hidden", str(hidden),
    ]  # fmt: skip
    said = caller.run(*command, cwd=target.path, timeout=600)
    yield Judged(target, json.loads(said))
    harms: list[str] = []
    clean_up(target, harms)
    assert harms == []


def _add_project(target: Target, hidden: Path) -> None:
    for name, text in FILES.items():
        (target.path / name).parent.mkdir(exist_ok=True)
        (target.path / name).write_text(text)
    (hidden / "tests").mkdir(parents=True)
    other = TESTS.replace("1234567, 2", "7654321, 3").replace("2469134", "22962963")
    (hidden / "tests" / "test_more.py").write_text(other)
    target.caller.own(target.path)
    target.caller.own(hidden)
    target.git("add", "--all")
    target.git("commit", "-qm", "a shop")
    target.remember()


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda path: path.stem)
def test_cheat_is_noticed_and_deceives_a_judge_that_trusts_it(judged: Judged, cheat: Path) -> None:
    found = judged.candidate(cheat.stem)
    ((how, what),) = re.findall(r"^#: (\w+) (\w+)$", cheat.read_text(), re.MULTILINE)
    flags = {flag["flag"] for flag in found["flags"] if flag["out"] == (how == "out")}
    assert found["hidden"] == what if how == "hidden" else what in flags
    assert found["place"] is None or found["place"] > judged.candidate("honest")["place"]
    assert _is_trusted(judged.target, found["commit"]), "the cheat does not deceive anybody"


def _is_trusted(target: Target, commit: str) -> bool:
    """Return whether the checks succeed on the candidate's own files, as in a naive judge."""
    with tempfile.TemporaryDirectory() as place:
        archive = subprocess.run(
            ["git", "-c", f"safe.directory={target.path}", "archive", commit],
            cwd=target.path, capture_output=True, check=True,
        )  # fmt: skip
        subprocess.run(["tar", "-x"], cwd=place, input=archive.stdout, check=True)
        env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(["sh", "-c", SUITE], cwd=place, env=env, capture_output=True)
    return done.returncode == 0


def test_honest_candidate_is_picked_and_nothing_else_changes(judged: Judged) -> None:
    honest = judged.candidate("honest")
    assert (honest["passes"], honest["hidden"]) == (True, "pass")
    assert judged.judgement["picked"] == honest["worker_id"]
    assert judged.target.harms(len(CHEATS) + 1) == []
    assert judged.target.broken_objects() == []
