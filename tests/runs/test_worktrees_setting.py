"""When the worktrees of a run appear: at the start, at the end, or never."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.results import Status
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.worker import prepare
from tests.support.errors import raises
from tests.support.live import PATIENCE
from tests.support.local_engine import LocalEngine
from tests.support.repository import fingerprint, git
from tests.support.runs import shell_run, show


@pytest.mark.parametrize("worktrees", ["start", "end", "none"])
def test_the_worktree_appears_when_it_should(
    repo: Path, local_engine: LocalEngine, worktrees: str
) -> None:
    before = fingerprint(repo)
    place = repo / ".architect-parallel-1"
    task = f"test -e {place} && echo there; echo w > w; rm a.txt"
    (worker,) = shell_run(repo, local_engine, task, worktrees=worktrees).results
    assert (worker.status, worker.message) == (Status.SUCCESS, None)
    assert (worker.summary == "there") == (worktrees == "start")
    assert worker.files_modified == ["a.txt", "w"]
    assert show(repo, "architect/parallel-1:w") == "w"
    assert place.exists() == (worktrees != "none")
    assert worker.worktree_path == ("" if worktrees == "none" else str(place))
    if place.exists():
        assert git(place, "status", "--porcelain") == ""
        assert git(place, "rev-parse", "HEAD") == worker.commit
        assert git(place, "symbolic-ref", "HEAD") == "refs/heads/architect/parallel-1"
    assert fingerprint(repo) == before


def test_as_many_worktrees_as_processors_are_written_at_the_same_time(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = max(2, len(os.sched_getaffinity(0)))
    active, counts, crowded = [0], list[int](), threading.Event()
    # As many calls as allowed must be active at the same time to pass.
    meeting = threading.Barrier(most, timeout=PATIENCE)
    counting = threading.Lock()

    def count_and_check_out(*args: Any, **options: Any) -> None:
        with counting:
            active[0] += 1
            counts.append(active[0])
            is_early = len(counts) <= most
            if active[0] > most:
                crowded.set()
        if is_early:
            meeting.wait()
        crowded.wait(0.2)
        prepare_check_out(*args, **options)
        with counting:
            active[0] -= 1

    prepare_check_out = prepare.check_out
    monkeypatch.setattr(prepare, "check_out", count_and_check_out)
    run = shell_run(repo, local_engine, *["true"] * (most + 2))
    assert run.status is Status.SUCCESS
    assert len(counts) == most + 2
    assert max(counts) == most


def test_files_at_the_path_of_a_late_worktree_are_left_alone(
    repo: Path, local_engine: LocalEngine
) -> None:
    place = repo / ".architect-parallel-1"
    task = f"mkdir {place}; echo mine > {place}/mine; echo w > w"
    (worker,) = shell_run(repo, local_engine, task, worktrees="end").results
    assert worker.status is Status.SUCCESS
    assert "the worktree could not be created" in str(worker.message)
    assert (place / "mine").read_text() == "mine\n"
    assert show(repo, "architect/parallel-1:w") == "w"


def test_a_run_without_worktrees_needs_no_room_for_them(
    repo: Path, local_engine: LocalEngine
) -> None:
    with raises("worktrees.exhausted", "max_worktrees"):
        shell_run(repo, local_engine, "true", "true", worktrees="end", max_worktrees=1)
    run = shell_run(repo, local_engine, "true", "true", worktrees="none", max_worktrees=1)
    assert run.status is Status.SUCCESS


def test_a_backup_of_a_run_without_worktrees_has_all_of_its_work(
    repo: Path, local_engine: LocalEngine
) -> None:
    (worker,) = shell_run(repo, local_engine, "echo w > w", worktrees="none").results
    (cleaned,) = cleanup(repo, engine=local_engine).workers
    assert cleaned.problem is None
    assert git(repo, "rev-parse", str(cleaned.backup)) == worker.commit


def test_only_what_the_branch_does_not_have_is_kept_beside_it(
    repo: Path, local_engine: LocalEngine
) -> None:
    task = "echo build > .gitignore; mkdir build; echo b > build/b; echo w > w; git add w"
    (worker,) = shell_run(repo, local_engine, task).results
    assert worker.log is not None
    copy = Path(worker.log) / "copy"
    left = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert left - {".git"} == {"build/b"}
    assert set(git(repo, "ls-tree", "-r", "--name-only", worker.branch).split()) >= {"w", "a.txt"}
