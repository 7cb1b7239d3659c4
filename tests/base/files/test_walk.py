"""Tests that a walk stays in its tree, ends in time, and uses few descriptors."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.base.files.disk_usage import disk_use
from orchestrator.base.files.walk import Walk

MANY = 1000


@contextmanager
def swapped(folder: Path, link: Path) -> Iterator[None]:
    """Repeatedly replace a directory by a link during the block, as a hostile worker could."""
    over = threading.Event()
    aside = folder.with_name("aside")

    def swap() -> None:
        while not over.is_set():
            folder.rename(aside)
            link.rename(folder)
            folder.rename(link)
            aside.rename(folder)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        over.set()
        swapper.join()


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.process
def test_directory_replaced_by_a_link_is_not_entered(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    for folder in (outside, tree / "deep" / "inner"):
        folder.mkdir(parents=True)
    for number in range(50):
        (outside / f"host-{number}").touch()
    (tree / "deep" / "inner" / "own").touch()
    (tree / "link").symlink_to(outside)
    found: set[str] = set()
    walks = missed = 0
    with swapped(tree / "deep", tree / "link"):
        begun = time.monotonic()
        # On a busy machine, it may take long until a walk meets a replacement.
        while (took := time.monotonic() - begun) < 2 or (not missed and took < 180):
            walk = Walk(tree, most=MANY)
            found.update(path for path, _ in walk)
            walks, missed = walks + 1, missed + bool(walk.hidden)
    assert not [path for path in found if "host-" in path]
    assert "deep/inner/own" in found
    assert missed, "no directory was replaced between listing and opening it: nothing was tested"


def test_directory_replaced_between_two_steps_is_not_entered(tmp_path: Path) -> None:
    """The last component of a path, or a directory above it, is replaced after it was listed."""
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    (outside / "b").mkdir(parents=True)
    (outside / "b" / "host").touch()
    for level in ("a/b", "z"):
        (tree / level).mkdir(parents=True)
    walk = Walk(tree, most=MANY)
    found = []
    for path, _ in walk:
        found.append(path)
        if path == "a/b":
            (tree / "a").rename(tmp_path / "gone")
            (tree / "a").symlink_to(outside)
            (tmp_path / "gone" / "b").rmdir()
            (tmp_path / "gone" / "b").symlink_to(outside)
    assert sorted(found) == ["a", "a/b", "z"]
    assert walk.hidden == 1


def test_link_in_place_of_the_tree_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "tree").symlink_to("/")
    walk = Walk(tmp_path / "tree", most=MANY)
    assert (list(walk), walk.hidden) == ([], 1)


def test_other_file_systems_are_not_entered() -> None:
    if Path("/proc").stat().st_dev == Path("/").stat().st_dev:
        pytest.fail("`/proc` is no file system of its own here")
    walk = Walk(Path("/"), most=MANY)
    folders = [path.partition("/")[0] for path, _ in walk if "/" in path]
    assert "proc" not in folders
    assert walk.hidden > 0


def test_walk_ends_at_its_deadline(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}").mkdir()
    walk = Walk(tmp_path, most=MANY, until=time.monotonic())
    assert list(walk) == []
    assert walk.late
    found = disk_use([tmp_path], most_files=MANY, seconds=0)
    assert (found.late, found.files) == (True, 0)
    assert not disk_use([tmp_path], most_files=MANY, seconds=60).late


def test_number_of_descriptors_is_bounded(tmp_path: Path) -> None:
    """The tree is deeper than a path may be long, and wide at every level."""
    depth, here = 600, os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        for name in ("left-0123456789", "right-0123456789"):
            os.mkdir(name, dir_fd=here)
        below = os.open("left-0123456789", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    before = open_descriptors()
    most = 0
    walk = Walk(tmp_path, most=10 * depth)
    for _ in walk:
        most = max(most, open_descriptors())
    assert (walk.seen, walk.hidden) == (2 * depth, 0)
    assert most - before < 30
    assert open_descriptors() == before


def test_vanished_entries_do_not_hide_others(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}").touch()
    walk = iter(Walk(tmp_path, most=MANY))
    first, _ = next(walk)
    for number in range(0, 100, 2):
        (tmp_path / f"{number}").unlink()
    rest = {path for path, _ in walk}
    assert {f"{number}" for number in range(1, 100, 2)} <= rest | {first}
