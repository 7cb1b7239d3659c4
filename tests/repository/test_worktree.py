"""Tests of the update of a worker's worktree, which overwrites no changes of the user."""

import os
import threading
from pathlib import Path

import pytest
from tenacity import stop_after_attempt

from orchestrator.base.errors import RepositoryError
from orchestrator.base.files.change_owner import change_owner
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.checkouts.worktree import add_worktree, check_out
from orchestrator.repository.repository import Repository
from orchestrator.worker.workspace.file_times import settle
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run

THEIRS = (20_002, 20_002) if os.getuid() == 0 else (os.getuid(), os.getgid())
"""User of the worker: another user if the tests run as root."""


@pytest.fixture
def base(repo: Path) -> str:
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture
def tip(repo: Path, base: str) -> str:
    """Return a worker's commit: one file changed, one added, one deleted."""
    (repo / "a.txt").write_text("worker's\n")
    (repo / "new.txt").write_text("worker's\n")
    (repo / "src" / "app.py").unlink()
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "work")
    made = git(repo, "rev-parse", "HEAD")
    git(repo, "reset", "-q", "--hard", base)
    return made


@pytest.fixture
def worktree(repo: Path, base: str, tip: str) -> Worktree:
    """Return a worktree at the base whose branch is already at the tip."""
    repository = Repository(repo)
    spec = WorkerSpec(worker_id=1, task="x", model=None)
    with repository.lock():
        repository.claim([spec.branch], base)
        worktree = add_worktree(repository, spec)
    check_out(repository, worktree, base)
    repository.move_branch(spec.branch, new=tip, old=base)
    return worktree


def update(repo: Path, worktree: Worktree, base: str, tip: str) -> None:
    worktree.update(Repository(repo), base=base, tip=tip)


def test_updated_worktree_equals_its_branch(
    repo: Path, worktree: Worktree, base: str, tip: str
) -> None:
    update(repo, worktree, base, tip)
    assert git(worktree.path, "status", "--porcelain") == ""
    assert (worktree.path / "a.txt").read_text() == "worker's\n"
    assert not (worktree.path / "src").exists()


def test_update_waits_for_the_users_git(
    repo: Path, worktree: Worktree, base: str, tip: str
) -> None:
    lock = worktree.git_dir / "index.lock"
    lock.touch()
    timer = threading.Timer(0.3, lock.unlink)
    timer.start()
    update(repo, worktree, base, tip)
    timer.join()
    assert (worktree.path / "a.txt").read_text() == "worker's\n"


def test_update_replaces_a_file_that_was_only_touched(
    repo: Path, worktree: Worktree, base: str, tip: str
) -> None:
    os.utime(worktree.path / "a.txt", (1, 1))
    update(repo, worktree, base, tip)
    assert (worktree.path / "a.txt").read_text() == "worker's\n"


def test_refresh_waits_for_the_users_git(repo: Path, worktree: Worktree) -> None:
    (worktree.path / "a.txt").touch()
    index, lock = worktree.git_dir / "index", worktree.git_dir / "index.lock"
    lock.touch()
    timer = threading.Timer(0.3, lock.unlink)
    timer.start()
    settle(Repository(repo), worktree.path, index)
    timer.join()
    assert int((worktree.path / "a.txt").stat().st_mtime) < int(index.stat().st_mtime)


@pytest.mark.parametrize("name", ["a.txt", "new.txt", "src/app.py"])
def test_changed_files_are_not_overwritten(
    repo: Path, worktree: Worktree, base: str, tip: str, name: str
) -> None:
    (worktree.path / name).write_text("user's\n")
    before = git(worktree.path, "status", "--porcelain")
    with pytest.raises(RepositoryError, match="read-tree"):
        update(repo, worktree, base, tip)
    assert (worktree.path / name).read_text() == "user's\n"
    assert git(worktree.path, "status", "--porcelain") == before


def test_no_filter_runs_in_a_workers_own_checkout(repo: Path, local_engine: LocalEngine) -> None:
    (repo / ".gitattributes").write_text("* filter=f\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "filtered")
    git(repo, "config", "filter.f.smudge", f"touch '{repo.parent}/MARK'; cat")
    (result,) = shell_run(repo, local_engine, "cat a.txt > copy.txt").results
    assert result.files_modified == ["copy.txt"]
    assert not (repo.parent / "MARK").exists()


def test_unrelated_files_of_the_user_are_kept(
    repo: Path, worktree: Worktree, base: str, tip: str
) -> None:
    (worktree.path / "mine.txt").write_text("user's\n")
    update(repo, worktree, base, tip)
    assert (worktree.path / "a.txt").read_text() == "worker's\n"
    assert git(worktree.path, "status", "--porcelain") == "?? mine.txt"


def test_slow_attributes_end_at_the_timeout(
    repo: Path, worktree: Worktree, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For a name that does not match, git tries many ways to match the stars; before 2.40, every
    # way, in exponential time.
    long = "a" * 200 + "1"
    (repo / long).write_text("x\n")
    (repo / ".gitattributes").write_text(("*a" * 30 + "b -text\n") * 200_000)
    # Only plumbing commands, because commands that read attributes would be as slow.
    for name in (long, ".gitattributes"):
        blob = git(repo, "hash-object", "-w", "--no-filters", name)
        git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    slow = git(repo, "commit-tree", git(repo, "write-tree"), "-p", base, "-m", "slow")
    monkeypatch.setattr("orchestrator.repository.checkouts.checkout.CHECKOUT_TIMEOUT", 1.0)

    with raises("git.timeout"):
        update(repo, worktree, base, slow)

    assert not (worktree.git_dir / "index.lock").exists()


def owned_by(worktree: Worktree) -> set[int]:
    """Return the owners of all files that the worker may change."""
    inside = {path for path in worktree.path.rglob("*") if path.name != ".git"}
    return {path.lstat().st_uid for path in inside}


def assert_index_is_true(worktree: Worktree) -> None:
    """Check that git would read no file: the index has the files' own stat data."""
    listing = git(worktree.path, "ls-files", "--debug").splitlines()
    assert listing
    for name, ctime, _, inode, owner, size in batched(listing, 6):
        info = (worktree.path / name).lstat()
        seconds, nanoseconds = divmod(info.st_ctime_ns, 10**9)
        assert ctime.split() == ["ctime:", f"{seconds}:{nanoseconds}"]
        assert inode.split()[-1] == str(info.st_ino)
        assert owner.split() == ["uid:", str(info.st_uid), "gid:", str(info.st_gid)]
        assert size.split()[1] == str(info.st_size)
        assert size.split()[-1] == "0"


def batched(lines: list[str], count: int) -> list[list[str]]:
    return [lines[start : start + count] for start in range(0, len(lines), count)]


@pytest.fixture
def empty(repo: Path, base: str) -> Worktree:
    """A worktree without files."""
    repository = Repository(repo)
    spec = WorkerSpec(worker_id=2, task="x", model=None)
    with repository.lock():
        repository.claim([spec.branch], base)
        return add_worktree(repository, spec)


@pytest.mark.parametrize("created", ["so", "changed"])
def test_files_belong_to_the_worker_and_git_reads_none_again(
    repo: Path, empty: Worktree, base: str, created: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether git creates the files with their owner, or cannot and the owner is changed."""
    if created == "changed":
        monkeypatch.setattr("orchestrator.repository.checkouts.checkout.can_own", lambda: False)
    check_out(Repository(repo), empty, base, owner=THEIRS)
    assert owned_by(empty) == {THEIRS[0]}
    ours = (empty.path, empty.path / ".git", empty.git_dir / "index")
    assert {path.lstat().st_uid for path in ours} == {os.getuid()}
    assert_index_is_true(empty)
    assert git(empty.path, "status", "--porcelain") == ""


def test_a_changed_owner_is_accepted_without_reading(repo: Path, worktree: Worktree) -> None:
    change_owner(worktree.path, THEIRS, keep=worktree.path)
    worktree.accept_owner(Repository(repo))
    assert_index_is_true(worktree)
    marks = git(worktree.path, "ls-files", "-v").splitlines()
    assert {line.split()[0] for line in marks} == {"H"}
    assert not (worktree.git_dir / "index.lock").exists()


def test_an_edit_of_the_users_is_not_accepted_with_the_owner(
    repo: Path, worktree: Worktree
) -> None:
    """Even one in the second of the checkout, of the same size."""
    file, index = worktree.path / "a.txt", worktree.git_dir / "index"
    os.utime(file, (10**9, 10**9))
    git(worktree.path, "update-index", "--refresh")
    file.write_text("b\n")
    for path in (file, index):
        os.utime(path, (10**9, 10**9))
    change_owner(worktree.path, THEIRS, keep=worktree.path)
    worktree.accept_owner(Repository(repo))
    assert git(worktree.path, "diff", "--name-only") == "a.txt"


def test_an_index_that_the_users_git_holds_is_left_alone(
    repo: Path, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktree._lock_index.retry, "stop", stop_after_attempt(2))  # type: ignore[attr-defined]
    lock = worktree.git_dir / "index.lock"
    lock.write_text("theirs")
    before = (worktree.git_dir / "index").read_bytes()
    worktree.accept_owner(Repository(repo))
    assert lock.read_text() == "theirs"
    assert (worktree.git_dir / "index").read_bytes() == before


def test_many_young_files_are_made_old_by_waiting(
    repo: Path, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.worker.workspace.file_times._SECONDS_PER_FILE", 1.0)
    index = worktree.git_dir / "index"
    files = [worktree.path / name for name in ("a.txt", "src/app.py")]
    for file in files:
        file.touch()
    before = [file.stat() for file in files]
    settle(Repository(repo), worktree.path, index)
    assert [file.stat() for file in files] == before
    assert all(int(info.st_mtime) < int(index.stat().st_mtime) for info in before)


def test_files_of_the_second_of_their_index_are_made_older_later_too(
    repo: Path, worktree: Worktree
) -> None:
    index = worktree.git_dir / "index"
    files = [worktree.path / name for name in ("a.txt", "src/app.py")]
    second = int(index.stat().st_mtime) - 5
    for path in (*files, index):
        os.utime(path, (second, second))
    settle(Repository(repo), worktree.path, index)
    assert all(int(file.stat().st_mtime) < int(index.stat().st_mtime) for file in files)
