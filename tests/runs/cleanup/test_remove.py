"""Tests that a cleanup loses no work, and touches only its own objects."""

import fcntl
import shutil
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineError
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, RUN
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.report import CleanupReport
from orchestrator.runs.cleanup.restore import restore
from orchestrator.state.run_directory import RunDirectory, all_runs
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.repository import git
from tests.support.runs import past_run, shell_run, show

COMMIT = "echo done > done.txt; git add -A; git commit -qm done"


@pytest.fixture
def worktree(repo: Path, local_engine: LocalEngine) -> Path:
    """Return the worktree of a worker that succeeded."""
    (result,) = past_run(repo, local_engine, COMMIT).results
    return Path(result.worktree_path)


def clean(repo: Path, **rest: bool) -> CleanupReport:
    return cleanup(repo, engine=None, **rest)


def test_unmerged_and_uncommitted_work_is_backed_up(repo: Path, worktree: Path) -> None:
    (worktree / "note.txt").write_text("mine")
    (cleaned,) = clean(repo).workers
    assert not worktree.exists()
    assert git(repo, "for-each-ref", "refs/heads/architect") == ""
    assert show(repo, f"{cleaned.backup}:note.txt") == "mine"
    assert show(repo, f"{cleaned.backup}:done.txt") == "done"
    restore(repo)
    assert (worktree / "note.txt").read_text() == "mine"


def test_second_backup_does_not_replace_the_first(repo: Path, worktree: Path) -> None:
    (first,) = clean(repo).workers
    restore(repo)
    git(worktree, "commit", "-q", "--amend", "-m", "changed my mind")
    (second,) = clean(repo).workers
    assert first.backup
    assert second.backup
    assert git(repo, "log", "-1", "--format=%s", first.backup) == "done"
    assert git(repo, "log", "-1", "--format=%s", second.backup) == "changed my mind"


def test_merged_work_is_not_backed_up(repo: Path, worktree: Path) -> None:
    git(repo, "merge", "-q", "architect/parallel-1")
    (cleaned,) = clean(repo).workers
    assert cleaned.backup is None
    assert not worktree.exists()


def test_live_run_is_not_removed(repo: Path, worktree: Path) -> None:
    (run,) = all_runs(Repository(repo).state_dir)
    with (run.path / "lease").open("r+") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        report = clean(repo)
    assert report.live == (run.run_id,)
    assert report.workers == ()
    assert worktree.exists()


def test_directory_that_is_no_longer_a_worktree_is_kept(repo: Path, worktree: Path) -> None:
    (worktree / ".git").unlink()
    (worktree / "precious").write_text("mine")
    (cleaned,) = clean(repo).workers
    assert "no longer the worker's worktree" in (cleaned.problem or "")
    assert (worktree / "precious").exists()


def test_branch_checked_out_elsewhere_is_kept(repo: Path, worktree: Path) -> None:
    git(worktree, "checkout", "-q", "--detach")
    git(repo, "checkout", "-q", "architect/parallel-1")
    (cleaned,) = clean(repo).workers
    assert "is checked out in" in (cleaned.problem or "")
    assert git(repo, "rev-parse", "HEAD")


def test_cleanup_runs_no_program_of_the_tree(repo: Path, local_engine: LocalEngine) -> None:
    """A filter of the user may be a program in the tree, which the worker has rewritten."""
    mark = repo.parent / "MARK"
    task = f"echo '#!/bin/sh\ntouch {mark}; cat' > clean; chmod +x clean; {COMMIT}"
    (result,) = past_run(repo, local_engine, f"echo '* filter=f' > .gitattributes; {task}").results
    worktree = Path(result.worktree_path)
    git(repo, "config", "filter.f.clean", str(worktree / "clean"))
    (worktree / "note.txt").write_text("mine")
    (cleaned,) = clean(repo).workers
    assert not mark.exists()
    assert show(repo, f"{cleaned.backup}:note.txt") == "mine"


def test_engine_objects_of_other_programs_are_kept(
    repo: Path, worktree: Path, local_engine: LocalEngine
) -> None:
    labels = {MANAGED: "true", REPOSITORY: str(Repository(repo).common_dir), RUN: "another"}
    network = local_engine.create_network("another", labels)
    report = cleanup(repo, engine=local_engine)
    assert report.leftovers == 0
    assert not worktree.exists()
    (left,) = local_engine.leftovers(labels)
    assert left.id == network
    local_engine.remove(left)


def network_of(engine: LocalEngine, repo: Path, run_id: str) -> dict[str, str]:
    """Create a network with the labels of a run, and return the labels."""
    labels = {MANAGED: "true", REPOSITORY: str(Repository(repo).common_dir), RUN: run_id}
    engine.create_network(f"orchestrator-{run_id}", labels)
    return labels


def test_objects_of_a_run_without_a_directory_are_removed(
    repo: Path, local_engine: LocalEngine
) -> None:
    labels = network_of(local_engine, repo, "20260101-000000-abcdef")
    assert cleanup(repo, engine=local_engine, dry_run=True).leftovers == 1
    assert len(local_engine.leftovers(labels)) == 1
    assert cleanup(repo, engine=local_engine).leftovers == 1
    assert local_engine.leftovers(labels) == []


def test_objects_of_an_unknown_run_on_an_engine_of_several_machines_are_kept(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine may have a repository at the same path."""
    monkeypatch.setattr(local_engine, "configure", lambda _: None, raising=False)
    labels = network_of(local_engine, repo, "20260101-000000-abcdef")
    report = cleanup(repo, engine=local_engine)
    assert (report.leftovers, report.problems) == (0, ())
    assert report.others == ("20260101-000000-abcdef is not recorded here",)
    (left,) = local_engine.leftovers(labels)
    local_engine.remove(left)


def test_objects_of_a_run_that_is_being_created_are_kept(
    repo: Path, local_engine: LocalEngine
) -> None:
    labels = network_of(local_engine, repo, "20260101-000000-abcdef")
    run = RunDirectory(Repository(repo).state_dir / "runs" / "20260101-000000-abcdef")
    run.create("{}")
    assert cleanup(repo, engine=local_engine).leftovers == 0
    (left,) = local_engine.leftovers(labels)
    run.release()
    local_engine.remove(left)


def test_dry_run_changes_nothing(repo: Path, worktree: Path) -> None:
    before = git(repo, "for-each-ref")
    (cleaned,) = clean(repo, dry_run=True).workers
    assert cleaned.backup
    assert worktree.exists()
    assert git(repo, "for-each-ref") == before


def test_restore_runs_no_program_of_the_tree(repo: Path, local_engine: LocalEngine) -> None:
    mark = repo.parent / "MARK"
    git(repo, "config", "filter.f.smudge", "./a-filter")
    (repo / ".gitattributes").write_text("*.txt filter=f\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a filter that lies in the tree")
    program = f"echo '#!/bin/sh\ntouch {mark}; cat' > a-filter; chmod +x a-filter"
    past_run(repo, local_engine, f"{program}; echo x > z.txt")
    clean(repo)
    restore(repo)
    tree = repo / ".architect-parallel-1"
    assert (tree / "z.txt").read_text() == "x\n"
    git(tree, "checkout", "-q", "--force", "HEAD", "--", "z.txt")
    git(tree, "status")
    assert not mark.exists()


def test_broken_worktree_does_not_prevent_other_removals(
    repo: Path, local_engine: LocalEngine
) -> None:
    past_run(repo, local_engine, "echo 1 > one", "echo 2 > two")
    shutil.rmtree(repo / ".git" / "worktrees" / "-architect-parallel-1")
    first, second = clean(repo).workers
    assert first.problem
    assert (repo / ".architect-parallel-1" / "one").exists()
    assert second.problem is None
    assert not (repo / ".architect-parallel-2").exists()


class Refusing(LocalEngine):
    """An engine that creates no container."""

    def create(self, spec: ContainerSpec) -> LocalContainer:  # noqa: ARG002
        raise EngineError("cannot create the container: unknown mount option", key="engine.refusal")


def test_worker_without_a_container_needs_no_engine(repo: Path, tmp_path: Path) -> None:
    engine = Refusing(tmp_path / "refusing")
    shell_run(repo, engine, COMMIT)
    assert (repo / ".architect-parallel-1").exists()
    (cleaned,) = cleanup(repo, engine=engine).workers
    assert (cleaned.problem, cleaned.note) == (None, None)
    assert not (repo / ".architect-parallel-1").exists()
    assert git(repo, "for-each-ref", "refs/heads/architect") == ""
    (run,) = all_runs(Repository(repo).state_dir)
    assert [path.name for path in run.worker(1).iterdir() if path.is_dir()] == []


def test_unchecked_dead_runs_are_reported(repo: Path, tmp_path: Path) -> None:
    shell_run(repo, Refusing(tmp_path / "refusing"), COMMIT)
    (run,) = all_runs(Repository(repo).state_dir)
    assert clean(repo).unchecked == (run.run_id,)
    assert clean(repo).unchecked == ()
