"""Tests of a run that is killed between two attempts of a worker."""

import os
import signal
from pathlib import Path

import pytest

from orchestrator.base.results import Status
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.state.record.history import attempts
from orchestrator.state.run_directory import RunDirectory
from tests.support.attempts import count, flaky, kept, state_of
from tests.support.forks import Fork
from tests.support.live import PATIENCE, ROOT
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import show

_STEPS = [
    ("orchestrator.state.worker.checkpoints:Checkpoints.note_given_up", 1),
    ("orchestrator.worker.attempts:_archive_attempt", 1),
    ("orchestrator.worker.attempts:_back_to", 1),
    ("orchestrator.repository.repository:Repository.move_branch", 2),
    ("orchestrator.repository.checkouts.checkout:Worktree.update", 2),
    ("orchestrator.state.worker.checkpoints:Checkpoints.note_given_up", 2),
    ("orchestrator.worker.prepare:make_store", 2),
    ("orchestrator.state.worker.checkpoints:Checkpoints.note_prepared", 2),
    ("orchestrator.state.worker.checkpoints:Checkpoints.note_ending", 2),
    ("orchestrator.repository.repository:Repository.move_branch", 4),
]
_OF_BASE_ALONE = ("_back_to", "move_branch")
_KEPT = [
    *(step for step in _STEPS if not step[0].endswith(_OF_BASE_ALONE)),
    ("orchestrator.repository.repository:Repository.move_branch", 2),
]
"""Steps of a run in which each attempt continues the work of the previous one."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try every step before and after it in `make faults`, every other one in `make test`."""
    if "when" not in metafunc.fixturenames:
        return
    every = metafunc.config.getoption("--faults")
    cases = [("before", "base", *step) for step in _STEPS]
    cases += [("after", "keep", *step) for step in _KEPT]
    cases += [("after", "base", *step) for step in _STEPS] if every else []
    cases += [("before", "keep", *step) for step in _KEPT] if every else []
    shown = cases if every else cases[::2]
    metafunc.parametrize(("when", "retry_from", "target", "nth"), shown)


class TestKilled:
    def test_resume_continues_after_a_kill_at_any_step(
        self, repo: Path, tmp_path: Path, tally: Path, target: str, nth: int, when: str,
        retry_from: str,
    ) -> None:  # fmt: skip
        task = flaky(tally, failures=2)
        words = (target, when, str(nth), str(repo), str(tmp_path / "e"), task, retry_from)
        with (tmp_path / "said").open("w+b") as said:
            run = Fork("tests.support.dying_run", words, cwd=ROOT, env=os.environ, stderr=said)
            code = run.wait(PATIENCE)
            said.seek(0)
            assert code == -signal.SIGKILL, said.read().decode()
        engine = LocalEngine(tmp_path / "again")
        (worker,) = ResumedRun(state_of(repo), engine=engine).execute().results
        assert (worker.status, worker.attempts, count(tally)) == (Status.SUCCESS, 3, 3)
        if target.endswith("note_ending") and when == "before":
            # The local engine loses the container with the run's process: the attempt is repeated.
            return
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
