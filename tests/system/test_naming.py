"""Tests of worktrees outside of the repository, through a crash and a cleanup."""

import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.state.record.states import WorkerState
from tests.support.cli import orchestrator, start
from tests.support.live import eventually, states
from tests.support.repository import fingerprint, git, make_repository

pytestmark = pytest.mark.docker
FLOW = """
tasks:
  - {id: one, task: "pwd; cat a.txt; sleep 4; echo one > one.txt"}
  - {id: two, task: "cat one.txt; echo two > two.txt", depends_on: [one]}
"""


@pytest.mark.extra
def test_killed_run_with_worktrees_outside_is_resumed_and_cleaned_up(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    (tmp_path / "flow.yaml").write_text(FLOW)
    before = fingerprint(repo)
    names = ("--worktree-dir", "../.worktrees/{id}-{n}", "--branch", "solve/{id}")
    command = ("spec", "run", str(tmp_path / "flow.yaml"), "--agent-cli", "shell", *names)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start(*command, "--network", "none", cwd=repo, **quiet)
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed = orchestrator("resume", "--json", cwd=repo)
    assert resumed.returncode == 0, resumed.stderr
    found = [resumed.results[number] for number in (1, 2)]
    assert [one["branch"] for one in found] == ["solve/one", "solve/two"]
    places = [tmp_path / ".worktrees" / name for name in ("one-1", "two-2")]
    assert [Path(one["worktree_path"]) for one in found] == places
    # The path in containers does not depend on the names; task two starts with one's files.
    log = (Path(found[0]["log"]) / "stdout.log").read_text()
    assert str(tmp_path) not in log
    assert log.splitlines()[-1] == "a"
    assert (places[1] / "one.txt").read_text() == "one\n"
    assert git(places[1], "status", "--porcelain") == ""
    cleaned = orchestrator("parallel-cleanup", cwd=repo)
    assert cleaned.returncode == 0, cleaned.stderr
    assert list((tmp_path / ".worktrees").iterdir()) == []
    backups = git(repo, "for-each-ref", "--format=%(refname)", "refs/orchestrator/backup")
    assert len(backups.splitlines()) == 2
    assert git(repo, "for-each-ref", "refs/heads/solve") == ""
    after = fingerprint(repo)
    before.pop("refs"), after.pop("refs")
    assert after == before
