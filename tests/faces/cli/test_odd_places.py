"""Tests of commands in directories that were removed, moved, or cannot be read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import ConfigError, RepositoryError
from orchestrator.config.settings.container import Isolation
from orchestrator.repository.checkouts.snapshot import snapshot_checkout
from orchestrator.repository.checkouts.worktree import open_worktree
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.record.listing import list_runs
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.workspace.untracked import choose_copies
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git, make_repository
from tests.support.runs import configured, shell_run

NOBODY = 65534


@pytest.mark.variants("words0", "words2")
@pytest.mark.parametrize("words", [["ls"], ["doctor"], ["merge"], ["config", "show"]])
def test_removed_directory_is_named(tmp_path: Path, words: list[str]) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$0"; exec "$@"', str(place), sys.executable, "-P", "-m",
         "orchestrator", *words],
        cwd=place, capture_output=True, text=True, check=False, timeout=100,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.returncode == 3
    assert "the current directory was removed" in done.stderr


def test_repository_with_a_line_break_in_its_path_is_refused(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "a\nb")
    with raises("path.invalid"):
        Repository(repo)


def test_locked_worktree_without_its_directory_is_named(
    repo: Path, local_engine: LocalEngine
) -> None:
    shell_run(repo, local_engine, "echo x > new")
    tree = repo / ".architect-parallel-1"
    git(repo, "worktree", "lock", str(tree))
    tree.rename(repo.parent / "away")

    (worker,) = cleanup(repo, engine=local_engine).workers
    assert "git worktree unlock" in (worker.problem or "")

    git(repo, "worktree", "unlock", str(tree))
    (worker,) = cleanup(repo, engine=local_engine).workers
    assert worker.problem is None


def test_renamed_repository_names_the_way_to_repair_it(
    repo: Path, local_engine: LocalEngine
) -> None:
    shell_run(repo, local_engine, "echo x > new")
    moved = repo.rename(repo.parent / "moved")

    tree = moved / ".architect-parallel-1"
    with pytest.raises(RepositoryError) as caught:
        open_worktree(tree, "architect/parallel-1")
    assert f"git worktree repair {tree}" in str(caught.value.hint)

    git(moved, "worktree", "repair", str(tree))
    assert open_worktree(tree, "architect/parallel-1").git_dir.is_dir()


def _listed(repo: Path) -> list[str | None]:
    runs = list_runs(Repository(repo)).runs
    return [worker.worktree_path for run in runs for worker in run.workers]


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(merged=True)])
def test_commands_find_the_worktrees_of_a_moved_repository(
    repo: Path, local_engine: LocalEngine, wanted: Wanted
) -> None:
    shell_run(repo, local_engine, "echo x > new")
    moved = repo.rename(repo.parent / "moved")
    tree = moved / ".architect-parallel-1"
    git(moved, "merge", "-q", "architect/parallel-1")

    assert _listed(moved) == [str(tree)]
    report = cleanup(moved, engine=local_engine, wanted=wanted)
    said = [*report.problems, *(worker.problem or "" for worker in report.workers)]
    assert f"git worktree repair {tree}" in " ".join(said)
    assert (tree / "new").exists()
    assert git(moved, "rev-parse", "architect/parallel-1")

    git(moved, "worktree", "repair", str(tree))
    (worker,) = cleanup(moved, engine=local_engine, wanted=wanted).workers
    assert (worker.problem, worker.worktree) == (None, str(tree))
    assert not tree.exists()


def test_resume_of_a_moved_repository_is_refused_until_git_finds_the_worktrees(
    repo: Path, local_engine: LocalEngine
) -> None:
    run = shell_run(repo, local_engine, "echo x > new")
    moved = repo.rename(repo.parent / "moved")
    directory = RunDirectory(moved / ".git" / "orchestrator" / "runs" / run.run_id)
    for result in (directory.path, directory.worker(1)):  # as if the run had died
        (result / "result.json").unlink()
    tree = moved / ".architect-parallel-1"

    with pytest.raises(RepositoryError, match=f"git worktree repair {tree}"):
        ResumedRun(directory, engine=local_engine).execute()
    assert directory.result(1) is None

    git(moved, "worktree", "repair", str(tree))
    (result,) = ResumedRun(directory, engine=local_engine).execute().results
    assert (result.worker_id, result.worktree_path) == (1, str(tree))


def test_cleanup_of_a_copied_repository_leaves_the_original_alone(
    repo: Path, local_engine: LocalEngine
) -> None:
    shell_run(repo, local_engine, "echo x > new")
    copied = Path(shutil.copytree(repo, repo.parent / "copied", symlinks=True))

    (worker,) = cleanup(copied, engine=None).workers
    assert f"{copied / '.architect-parallel-1'} is a copy" in (worker.problem or "")
    shutil.rmtree(copied / ".architect-parallel-1")
    (worker,) = cleanup(copied, engine=None).workers
    assert f"checked out in {repo / '.architect-parallel-1'}" in (worker.problem or "")

    assert _listed(repo) == [str(repo / ".architect-parallel-1")]
    (worker,) = cleanup(repo, engine=local_engine).workers
    assert worker.problem is None
    assert not (repo / ".architect-parallel-1").exists()


def test_run_of_a_linked_worktree_is_found_after_the_main_worktree_was_moved(
    repo: Path, tmp_path: Path, local_engine: LocalEngine
) -> None:
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", str(linked), "-b", "topic")
    shell_run(linked, local_engine, "echo x > new")
    moved = repo.rename(repo.parent / "moved")

    assert _listed(moved) == [str(linked / ".architect-parallel-1")]
    git(moved, "worktree", "repair", str(linked), str(linked / ".architect-parallel-1"))
    (worker,) = cleanup(linked, engine=local_engine).workers
    assert worker.problem is None
    assert not (linked / ".architect-parallel-1").exists()


def test_cleanup_names_a_worktree_that_it_does_not_know(repo: Path, tmp_path: Path) -> None:
    """The main worktree of a separate git directory was moved: git records no place of it."""
    stray = repo / ".architect-parallel-1"
    stray.mkdir()
    (stray / ".git").write_text(f"gitdir: {tmp_path}/gone/.git/worktrees/x\n")

    (problem,) = cleanup(repo, engine=None).problems
    assert str(stray) in problem


@pytest.fixture
def unreadable(repo: Path) -> Path:
    """Return a repository of another user with a directory and a file that he cannot read."""
    (repo / "dir" / "inner").mkdir(parents=True)
    (repo / "dir" / "inner" / "file").write_text("x\n")
    (repo / "secret").write_text("x\n")
    return repo


@pytest.mark.parametrize("pattern", ["dir/**", "/dir/*.txt", "dir/inner/file", "dir/inner/*"])
def test_pattern_below_an_unreadable_directory_is_refused(
    unreadable: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != "dir" and real(path, mode)
    )
    with pytest.raises(ConfigError, match="dir cannot be read"):
        choose_copies(Repository(unreadable), [pattern])
    choose_copies(Repository(unreadable), ["*.log"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_unreadable_uncommitted_file_is_named(unreadable: Path) -> None:
    (unreadable / "secret").chmod(0)
    subprocess.run(["chown", "-R", str(NOBODY), str(unreadable)], check=True)
    (unreadable / "secret").chmod(0)
    for parent in unreadable.parents:
        if parent != Path("/tmp") and parent.is_relative_to("/tmp"):
            parent.chmod(0o755)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setegid(NOBODY)
            os.seteuid(NOBODY)
            os.setreuid(NOBODY, NOBODY)
            repository = Repository(unreadable)
            repository.state_dir.mkdir()
            snapshot_checkout(
                repository, parent=git(unreadable, "rev-parse", "HEAD"), message="m",
                scratch=repository.state_dir / "index",
            )  # fmt: skip
        except RepositoryError as error:
            code = 0 if "`secret`: permission denied" in error.message else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _notices(repo: Path, **isolation: Any) -> str:
    config = configured("echo x", isolation=Isolation(network="none", **isolation))
    return "\n".join(ParallelRunner(config, repo).plan().notices)


@pytest.mark.parametrize("pattern", ["vendor/**", "vendor/", "vendor/lib", "*"])
def test_nested_repository_below_a_copied_pattern_is_named(repo: Path, pattern: str) -> None:
    (repo / "vendor").mkdir()
    (repo / "vendor" / "plain").write_text("x\n")
    make_repository(repo / "vendor" / "lib")

    assert "were not copied: `vendor/lib/`" in _notices(repo, copied=(pattern,))
    assert "were not copied" not in _notices(repo, copied=("vendor/plain",))


def test_committed_repository_without_gitmodules_is_named(repo: Path) -> None:
    assert "separate repositories" not in _notices(repo)
    make_repository(repo / "inner")
    git(repo, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    git(repo, "commit", "-qm", "inner")

    assert "`.gitmodules` does not name: `inner`" in _notices(repo)


def test_committed_links_with_absolute_targets_are_named(repo: Path) -> None:
    (repo / "inside").symlink_to("a.txt")
    (repo / "node_modules").symlink_to("/opt/x")
    (repo / "other").symlink_to("/opt/x")
    (repo / "escape").symlink_to("/\x1b[2J")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "links")

    (notice,) = [line for line in _notices(repo).splitlines() if "links lead out" in line]
    assert "`node_modules -> /opt/x`, `other -> /opt/x`" in notice
    assert "inside" not in notice
    assert "\x1b" not in notice
