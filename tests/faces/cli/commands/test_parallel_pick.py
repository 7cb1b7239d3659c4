"""Tests of `parallel --pick auto`, and of a judgement that is interrupted."""

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import docker
import pytest

from orchestrator.faces.cli.after_run import Picked
from orchestrator.faces.cli.app import run
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.judgement import Judgement
from orchestrator.runs.purposes.picking import with_merge
from orchestrator.state.run_directory import all_runs
from tests.support.cli import start
from tests.support.daemon import ours
from tests.support.judging import commit_shop
from tests.support.live import PATIENCE, eventually
from tests.support.reports import judged, merged
from tests.support.repository import git

FIX = 'sed -i "s/width + height/width * height/" calc.py'
TASK = f"test $ORCHESTRATOR_MODEL = idle || {FIX}"
CHECK = "python3 -m unittest discover -s tests -t ."
SHELL = ("--agent-cli", "shell", "--network", "none", "--quiet")


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_shop(repo)
    monkeypatch.chdir(repo)


@pytest.mark.docker
def test_task_becomes_one_tested_commit(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = git(repo, "rev-parse", "HEAD")
    command = [
        "parallel",
        TASK,
        *SHELL,
        "--models",
        "idle,right",
        "--workers",
        "2",
        "--pick",
        "auto",
    ]
    assert run([*command, "--check", CHECK, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    judgement = said["judgement"]
    assert [one["worker_id"] for one in said["results"]] == [1, 2]
    assert (judgement["run_id"], judgement["picked"]) == (said["run_id"], 2)
    assert judgement["merged"]["landed"] == [2]
    assert judgement["merged"]["before"] == before
    assert git(repo, "rev-parse", "HEAD") == judgement["merged"]["after"]
    assert "width * height" in (repo / "calc.py").read_text()
    # Nothing is merged if no worker passes; the run's own exit code is kept.
    git(repo, "reset", "-q", "--hard", before)
    assert run([*command, "--check", "grep nothing calc.py"]) == 2
    assert "2 candidates, 0 of them pass: there is nothing to pick" in capsys.readouterr().out
    assert git(repo, "rev-parse", "HEAD") == before


@pytest.mark.extra
@pytest.mark.docker
@pytest.mark.parametrize(
    "command", [["eval", "-n", "1"], ["parallel", "--workers", "1"]], ids=["eval", "parallel"]
)
def test_best_worker_that_conflicts_is_not_merged(
    command: list[str], repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = git(repo, "rev-parse", "HEAD")
    (repo / "calc.py").write_text("rewritten\n")
    git(repo, "commit", "-q", "-a", "-m", "rewritten")
    moved = git(repo, "rev-parse", "HEAD")
    words = [*SHELL, "--base", base, "--check", CHECK, "--pick", "auto", "--json"]
    assert run([*command, FIX, *words]) == 1
    said = json.loads(capsys.readouterr().out)
    judgement = said.get("judgement", said)
    assert (judgement["picked"], judgement["merged"]["landed"]) == (1, [])
    assert [left["reason"] for left in judgement["merged"]["left"]] == ["conflict"]
    assert git(repo, "rev-parse", "HEAD") == moved


@pytest.mark.parametrize(
    ("left", "judgement", "code"),
    [
        (False, judged(), 0),
        (True, judged(), 1),
        (None, judged(decision="none", picked=None), 1),
        (None, judged(decision="undecided", picked=None), 2),
    ],
)
def test_exit_code_tells_whether_the_best_worker_was_merged(
    left: bool | None, judgement: Judgement, code: int
) -> None:
    done = None
    if left is not None:
        done = merged() if left else merged().model_copy(update={"left": ()})
    picked = Picked(judgement=with_merge(judgement, done))
    assert (picked.exit_code_after(0), picked.exit_code_after(5)) == (code, code and 5)


@pytest.mark.extra
@pytest.mark.docker
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=pytest.mark.extra)],
)
def test_interrupted_judgement_can_be_repeated(
    number: int, code: int, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["parallel", FIX, *SHELL, "--workers", "1"]) == 0
    state = Repository(repo).state_dir
    (of_agent,) = (state / "runs").glob("*/")
    check = "echo begun; sleep 987"
    with start("judge", "--check", check, cwd=repo, stderr=subprocess.PIPE) as process:
        logs = (state / "runs").glob
        eventually(lambda: [one for one in logs("*/worker-*/stdout.log") if one.read_text()])
        process.send_signal(number)
        assert process.wait(PATIENCE) == code
    if number == signal.SIGKILL:
        # Otherwise, the containers would run until their deadlines, as after any killed run.
        (of_check,) = (path.name for path in (state / "runs").glob("*/") if path != of_agent)
        assert run(["parallel-cleanup", "--run", of_check]) == 0
    with closing(docker.APIClient()) as client:
        eventually(lambda: not ours(client, repo), "the end of all containers")
    assert not [*of_agent.glob("judgement-*")]
    capsys.readouterr()
    assert run(["judge", "--check", CHECK, "--json"]) == 0
    judgement = json.loads(capsys.readouterr().out)
    assert (judgement["run_id"], judgement["picked"]) == (of_agent.name, 1)
    others = [one for one in all_runs(state) if one.path != of_agent]
    assert all(one.is_test for one in others), "no agent started"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pick", "best"], "option `--pick` is `best`: must be `auto`"),
        (["--pick", "auto"], "`--pick` needs a check"),
        (["--pick", "auto", "--check", "true", "--task", "other"], "and there are 2 tasks"),
        (["--pick", "auto", "--check", "true", "--detach"], "`--pick` cannot be used with"),
        (["--pick", "auto", "--check", "true", "--summary"], "`--pick` cannot be used with"),
    ],
)
def test_wrong_uses_of_pick_are_errors(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["parallel", "true", *SHELL, *words]) == 3
    assert said in capsys.readouterr().err
