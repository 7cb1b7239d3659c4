"""Tests of the removal of directories that a worker made hard to remove."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.base.files.remove_tree import remove_tree

ORDINARY = 20_001


def test_deeply_nested_directories_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(".", os.O_RDONLY)
    os.chdir(top)
    for _ in range(3000):
        Path("d").mkdir()
        os.chdir("d")
    Path("file").touch()
    os.fchdir(here)
    os.close(here)

    remove_tree(top)

    assert not top.exists()


def test_links_are_removed_but_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "below").mkdir(parents=True)
    top = tmp_path / "top"
    (top / "inside").mkdir(parents=True)
    (top / "link").symlink_to(kept)
    (top / "inside" / "link").symlink_to(kept / "below")
    (kept / "below").chmod(0o555)
    kept.chmod(0o555)

    remove_tree(top)

    assert not top.exists()
    assert (kept / "below").stat().st_mode & 0o777 == 0o555
    assert kept.stat().st_mode & 0o777 == 0o555


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory of an ordinary user; root ignores permissions."""
    path = Path(tempfile.mkdtemp(prefix="orchestrator-test-"))
    if os.getuid() == 0:
        os.chown(path, ORDINARY, ORDINARY)
    yield path
    shutil.rmtree(path)


def as_an_ordinary_user(act: Callable[[], None]) -> None:
    """Call a function in a separate process of an ordinary user."""
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(ORDINARY)
            act()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.process
def test_locked_directories_are_unlocked(place: Path) -> None:
    as_an_ordinary_user(lambda: _remove_what_is_locked(place))
    assert [path.name for path in place.iterdir()] == ["done"]


def _remove_what_is_locked(place: Path) -> None:
    top = place / "top"
    (top / "a" / "b" / "c").mkdir(parents=True)
    (top / "a" / "b" / "file").touch()
    for path in ("a/b/c", "a/b", "a", "."):
        (top / path).chmod(0)
    remove_tree(top)
    (place / "done").touch()


def test_missing_directory_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "never")

    assert not (tmp_path / "never").exists()


def test_link_in_place_of_the_tree_is_removed_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").touch()
    target.chmod(0o500)
    (tmp_path / "link").symlink_to(target)
    remove_tree(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert [path.name for path in target.iterdir()] == ["file"]
    assert target.stat().st_mode & 0o777 == 0o500
