"""What a worker left is removed, however hard it made that."""

import os
from pathlib import Path

from orchestrator.workspace import remove_tree


def test_depth_beyond_any_path_is_no_obstacle(tmp_path: Path) -> None:
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


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "below").mkdir(parents=True)
    top = tmp_path / "top"
    (top / "inside").mkdir(parents=True)
    (top / "link").symlink_to(kept)
    (top / "inside" / "link").symlink_to(kept / "below")
    kept.chmod(0o555)

    remove_tree(top)

    assert not top.exists()
    assert (kept / "below").is_dir()
    assert kept.stat().st_mode & 0o777 == 0o555


def test_locked_directories_are_unlocked(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b" / "c").mkdir(parents=True)
    (top / "a" / "b" / "file").touch()
    for path in ("a/b/c", "a/b", "a", "."):
        (top / path).chmod(0)

    remove_tree(top)

    assert not top.exists()


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "never")

    assert not (tmp_path / "never").exists()


def test_a_link_in_its_place_is_removed_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").touch()
    target.chmod(0o500)
    (tmp_path / "link").symlink_to(target)
    remove_tree(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert [path.name for path in target.iterdir()] == ["file"]
    assert target.stat().st_mode & 0o777 == 0o500
