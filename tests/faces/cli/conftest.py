"""Fixtures with a repository as current directory, and with results."""

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.base.results import Reason, RunResult, Status, WorkerResult


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """Return a repository with one commit, as the current directory."""
    top = tmp_path / "repository"
    git = ["git", "-C", str(top), "-c", "user.name=n", "-c", "user.email=e@example.invalid"]
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "start"], check=True)
    for name in os.environ:
        if name.startswith("ORCHESTRATOR_") or name.endswith(("_API_KEY", "_API_BASE")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(top)
    return top


@pytest.fixture
def result() -> RunResult:
    """Return a run's result: one worker succeeded, one was killed for memory, one timed out."""
    return RunResult(
        run_id="20260101-000000-abcdef",
        status=Status.FAILED,
        base="0123456789abcdef0123456789abcdef01234567",
        engine="docker 20.10",
        duration=601.4,
        cost=0.0123,
        results=[
            worker(1, Status.SUCCESS, steps=7, cost=0.0123, cost_known=True, duration=12.34,
                   files_modified=["a", "b"], task="tests for auth", model="gpt-4o"),
            worker(2, Status.FAILED, reason=Reason.OOM, message="over its 512 MiB", duration=125.0,
                   task="tests\nfor \x1b[31musers", log="/logs/2"),
            worker(3, Status.TIMEOUT, reason=Reason.TIMEOUT, message="timeout", duration=600.0,
                   task="見出し", log="/logs/3"),
        ],
    )  # fmt: skip


def worker(number: int, status: Status, **rest) -> WorkerResult:
    return WorkerResult(
        worker_id=number,
        branch=f"architect/parallel-{number}",
        status=status,
        worktree_path=f"/repo/.architect-parallel-{number}",
        **{"model": "default", **rest},
    )
