"""Tests of a run that is killed between two attempts of a worker."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.results import Status
from orchestrator.runs.resume import ResumedRun
from orchestrator.state.history import attempts
from orchestrator.state.run_directory import RunDirectory
from tests.support.attempts import count, flaky, kept, state_of
from tests.support.live import ROOT
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import show

_CODE = """
import os, signal, sys
from pathlib import Path
from importlib import import_module
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run

repo, scratch, task, retry_from, target, when, nth = sys.argv[1:]
module, name = target.split(":")
holder = import_module(module)
*parents, name = name.split(".")
for parent in parents:
    holder = getattr(holder, parent)
real = getattr(holder, name)
calls = []

def deadly(*given, **named):
    calls.append(given)
    if when == "before" and len(calls) == int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
    answer = real(*given, **named)
    if when == "after" and len(calls) == int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

setattr(holder, name, deadly)
shell_run(
    Path(repo), LocalEngine(Path(scratch)), task, retries=3, retry_delay=0, retry_from=retry_from
)
"""
_STEPS = [
    ("orchestrator.state.checkpoints:Checkpoints.note_given_up", 1),
    ("orchestrator.worker.attempts:_archive_attempt", 1),
    ("orchestrator.worker.attempts:_back_to_base", 1),
    ("orchestrator.git.repository:Repository.move_branch", 2),
    ("orchestrator.git.worktree:Worktree.update", 2),
    ("orchestrator.state.checkpoints:Checkpoints.note_given_up", 2),
    ("orchestrator.worker.prepare:make_store", 2),
    ("orchestrator.state.checkpoints:Checkpoints.note_prepared", 2),
    ("orchestrator.state.checkpoints:Checkpoints.note_ending", 2),
    ("orchestrator.git.repository:Repository.move_branch", 4),
]
_OF_BASE_ALONE = ("_back_to_base", "move_branch")


class TestKilled:
    @pytest.mark.parametrize("retry_from", ["base", "keep"])
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize(("target", "nth"), _STEPS)
    def test_resume_continues_after_a_kill_at_any_step(
        self, repo: Path, tmp_path: Path, tally: Path, target: str, nth: int, when: str,
        retry_from: str,
    ) -> None:  # fmt: skip
        if retry_from == "keep" and target.endswith(_OF_BASE_ALONE):
            target, nth = "orchestrator.git.repository:Repository.move_branch", 2
        task = flaky(tally, failures=2)
        command = [sys.executable, "-c", _CODE, str(repo), str(tmp_path / "e"), task, retry_from]
        done = subprocess.run(
            [*command, target, when, str(nth)], cwd=ROOT, capture_output=True, timeout=60
        )
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        engine = LocalEngine(tmp_path / "again")
        (worker,) = ResumedRun(state_of(repo), engine=engine).execute().results
        if target.endswith("note_ending") and when == "before":
            # A container of this engine is lost with its process, and that is an attempt too.
            assert (worker.status, worker.attempts, count(tally)) == (Status.SUCCESS, 3, 3)
            return
        assert (worker.status, worker.attempts, count(tally)) == (Status.SUCCESS, 3, 3)
        expected = ["a.txt", "of-3"] if retry_from == "base" else ["a.txt", "of-1", "of-2", "of-3"]
        assert worker.files_modified == expected
        assert list(kept(repo)) == ["1/1", "1/2"]
        assert [number for number, _ in state_of(repo).attempts(1)] == [1, 2]
        for number, commit in ((1, kept(repo)["1/1"]), (2, kept(repo)["1/2"])):
            assert show(repo, f"{commit}:of-{number}") == str(number)
        tree = repo / ".architect-parallel-1"
        assert git(tree, "status", "--porcelain") == ""
        assert git(tree, "rev-parse", "HEAD") == worker.commit
        assert git(repo, "fsck", "--strict", "--no-dangling") == ""


def test_incomplete_directory_is_not_an_attempt(tmp_path: Path) -> None:
    for name in ("worker-1", "worker-1.attempt-2", "worker-1.half-made-1", "worker-11.attempt-1"):
        (tmp_path / name).mkdir()
    assert [number for number, _ in attempts(RunDirectory(tmp_path), 1)] == [2, None]
