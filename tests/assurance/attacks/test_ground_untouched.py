"""Tests that a run leaves the checkout unchanged, and that worktrees belong to the caller."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.assurance.attacks.caller import Caller
from tests.support.repository import fingerprint, make_repository

pytestmark = pytest.mark.docker
TASK = "echo work > work; git add -A; git commit -qm work; mkdir -m 000 locked; echo rest > rest"


@pytest.mark.parametrize("who", ["root", "user"])
def test_run_does_not_change_the_callers_checkout(everyone: dict[str, Caller], who: str) -> None:
    if who not in everyone:
        # Only root can run commands as another user.
        assert set(everyone) == {"user"}
        return
    caller = everyone[who]
    repo = make_repository(caller.home / "untouched")
    caller.own(repo)
    before = caller_fingerprint(caller, repo)
    command = [caller.python, "-m", "orchestrator", "parallel", "--agent-cli", "shell", TASK]
    options = ["--workers", "2", "--network", "none", "--json"]
    with caller.popen([*command, *options], repo, stdout=subprocess.PIPE) as process:
        stdout, _ = process.communicate(timeout=500)
    assert process.returncode == 0
    for result in json.loads(stdout)["results"]:
        assert result["files_modified"] == ["rest", "work"]
        worktree = Path(result["worktree_path"])
        assert {path.lstat().st_uid for path in [worktree, *worktree.rglob("*")]} == {caller.uid}
        assert caller.run("git", "status", "--porcelain", cwd=worktree) == ""
    assert caller_fingerprint(caller, repo) == before
    caller.run("git", "worktree", "remove", ".architect-parallel-1", cwd=repo)
    caller.run("git", "branch", "-D", "architect/parallel-1", cwd=repo)


def caller_fingerprint(caller: Caller, repo: Path) -> dict[str, str]:
    """Fingerprint a repository; git is run as the caller, because git trusts only the owner."""
    asked = {
        "status": caller.run("git", "status", "--porcelain", cwd=repo),
        "main": caller.run("git", "rev-parse", "main", "HEAD", cwd=repo),
    }
    return fingerprint(repo, with_git=False) | asked
