"""The checkout that workers share: made once, used again, and never trusted after a change."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.base.errors import RepositoryError
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.workspace.shared_checkout import (
    Checkouts,
    is_intact,
    prune_checkouts,
    shared_user,
)
from tests.support.errors import raises
from tests.support.repository import git

pytestmark = pytest.mark.process


@pytest.fixture
def base(repo: Path) -> str:
    (repo / "link").symlink_to("a.txt")
    (repo / "run.sh").write_text("exit 0\n")
    (repo / "run.sh").chmod(0o755)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "link and program")
    return git(repo, "rev-parse", "HEAD")


def run_directory(repo: Path, name: str = "20260101-000000-000001") -> RunDirectory:
    path = Repository(repo).state_dir / "runs" / name
    path.mkdir(parents=True, exist_ok=True)
    return RunDirectory(path)


def take(repo: Path, commit: str, name: str = "20260101-000000-000001") -> Path:
    """Return the tree that a new process of a run would use."""
    checkouts = Checkouts(Repository(repo), run_directory(repo, name))
    return checkouts.take(commit, "architect/parallel-1").path


def test_a_later_run_uses_the_checkout_of_an_earlier_one(repo: Path, base: str) -> None:
    tree = take(repo, base)
    files = {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}
    assert files == {".git", "a.txt", "link", "run.sh", "src/app.py"}
    inside = [path for path in tree.rglob("*") if path.name != ".git"]
    assert {path.lstat().st_uid for path in inside} == {shared_user()[0]}
    before = (tree / "a.txt").stat()
    git(repo, "commit", "-q", "--allow-empty", "-m", "the same files")
    assert take(repo, "HEAD", "20260101-000000-000002") == tree
    assert (tree / "a.txt").stat() == before


def test_other_files_have_another_checkout(repo: Path, base: str) -> None:
    assert take(repo, base) != take(repo, f"{base}~1")


def test_files_that_settings_would_change_have_another_checkout(repo: Path, base: str) -> None:
    tree = take(repo, base)
    git(repo, "config", "core.autocrlf", "true")
    other = take(repo, base)
    assert other != tree
    assert (other / "a.txt").read_bytes() == b"a\r\n"
    (repo / ".git" / "info" / "attributes").write_text("* -text\n")
    assert (take(repo, base) / "a.txt").read_bytes() == b"a\n"


def _replaced(tree: Path) -> None:
    """Change a file and set all of its times that can be set back."""
    info = (tree / "a.txt").stat()
    (tree / "a.txt").write_text("b\n")
    os.utime(tree / "a.txt", ns=(info.st_atime_ns, info.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": _replaced,
    "mode": lambda tree: (tree / "a.txt").chmod(0o666),
    "gone": lambda tree: (tree / "a.txt").unlink(),
    "new": lambda tree: (tree / "src" / "new").touch(),
    "fifo": lambda tree: os.mkfifo(tree / "fifo"),
    "folder": lambda tree: (tree / "src" / "empty").mkdir(),
    "other link": lambda tree: ((tree / "link").unlink(), (tree / "link").symlink_to("b.txt")),
    "index": lambda tree: git(
        tree, "--git-dir", str(tree.parent / "git"), "rm", "-q", "--cached", "a.txt"
    ),
    "no seal": lambda tree: (tree.parent / "seal").unlink(),
    "no index": lambda tree: (tree.parent / "git" / "index").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_checkout_is_never_used_again(repo: Path, base: str, change: str) -> None:
    tree = take(repo, base)
    assert is_intact(tree.parent)
    CHANGES[change](tree)
    fresh = take(repo, base)
    assert fresh != tree
    assert (fresh / "a.txt").read_text() == "a\n"
    assert is_intact(fresh.parent)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_checkout_with_another_owner_is_not_used(repo: Path, base: str) -> None:
    tree = take(repo, base)
    os.chown(tree / "src", 0, 0)
    assert take(repo, base) != tree


def test_only_the_caller_may_enter_the_directory_of_the_checkouts(repo: Path, base: str) -> None:
    place = take(repo, base).parent.parent
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o755)
    with raises("directory.not-private"):
        take(repo, base)


def test_a_link_in_place_of_the_directory_is_not_followed(repo: Path, base: str) -> None:
    place = take(repo, base).parent.parent
    place.rename(repo / "elsewhere")
    place.symlink_to(repo / "elsewhere")
    with pytest.raises(RepositoryError):
        take(repo, base)


def test_what_a_killed_process_left_is_no_checkout(repo: Path, base: str) -> None:
    place = Repository(repo).state_dir / "checkouts"
    place.mkdir(mode=0o700, parents=True)
    half = place / ".half" / "tree"
    half.mkdir(parents=True)
    (half / "planted").touch()
    assert not (take(repo, base) / "planted").exists()


def test_a_checkout_in_use_is_kept_and_others_are_removed(repo: Path, base: str) -> None:
    used = take(repo, base)
    unused = take(repo, f"{base}~1", "20260101-000000-000002")
    shutil.rmtree(run_directory(repo, "20260101-000000-000002").path)
    assert prune_checkouts(Repository(repo), keep=1) == 0
    assert unused.is_dir()
    assert prune_checkouts(Repository(repo), keep=0) > 0
    assert used.is_dir()
    assert {path.name for path in used.parent.parent.iterdir()} == {"lock", used.parent.name}


def test_a_sparse_checkout_is_shared_as_it_is(repo: Path, base: str) -> None:
    git(repo, "sparse-checkout", "set", "--no-cone", "/src/")
    tree = take(repo, base)
    assert not (tree / "a.txt").exists()
    assert (tree / "src" / "app.py").is_file()
    assert take(repo, base) == tree
