"""Tests of merges on a disk that is full: a small file system in memory."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.errors import OrchestratorError
from orchestrator.review.landing import land as landing
from orchestrator.review.landing import merge as merging
from tests.support.errors import raises
from tests.support.landing import branch, merge, untouched
from tests.support.merges import NUMBERS, World
from tests.support.repository import git, make_repository

MIB = 1024**2
SIZE = 48 * MIB
FILE = os.urandom(2 * MIB)
"""Content of a file of the branch; git cannot compress it."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "disk", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def small(disk: Path, tmp_path: Path) -> World:
    """Return a repository on the small disk."""
    repo = make_repository(disk / "repo")
    (repo / "numbers").write_text(NUMBERS)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "numbers")
    return World(repo, tmp_path)


def fill(disk: Path, *, free: int) -> None:
    """Fill the disk so that this number of bytes is free."""
    state = os.statvfs(disk)
    size = state.f_bavail * state.f_frsize - free
    with (disk / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, size))


@pytest.mark.parametrize("free", [0, 8 * 1024, 256 * 1024, 3 * MIB, 12 * MIB])
@pytest.mark.variants("0", str(3 * MIB))
def test_full_disk_moves_nothing(small: World, disk: Path, free: int) -> None:
    one = branch(small, 1, {"a.txt": "x\n", "large": FILE})
    before = untouched(small)
    fill(disk, free=free)
    with pytest.raises(OrchestratorError) as caught:
        merge(small, one)
    assert caught.value.exit_code == 3
    assert caught.value.hint
    assert untouched(small) == before
    assert git(small.repo, "stash", "list") == ""
    (disk / "filler").unlink()
    assert merge(small, one).landed == (1,)
    assert git(small.repo, "status", "--porcelain") == ""


def test_disk_that_fills_before_the_landing_moves_nothing(
    small: World, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = branch(small, 1, {"a.txt": "x\n", "large": FILE})
    before = untouched(small)
    real = merging.land

    def land(*given: object) -> None:
        fill(disk, free=4 * MIB)
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(merging, "land", land)
    with pytest.raises(OrchestratorError, match="too full"):
        merge(small, one)
    assert untouched(small) == before


def test_disk_that_fills_while_files_are_written_is_completed_later(
    small: World, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = branch(small, 1, {"a.txt": "x\n", "large": FILE, "more": FILE[::-1]})
    real = landing.bring_forward

    def bring_forward(*given: object, **named: object) -> None:
        fill(disk, free=MIB)
        real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(landing, "bring_forward", bring_forward)
    with raises("checkout.incomplete") as caught:
        merge(small, one)
    assert caught.value.exit_code == 3
    monkeypatch.undo()
    (disk / "filler").unlink()
    assert git(small.repo, "rev-parse", "main^2") == one.commit
    assert merge(small, one).contained == (1,)
    assert git(small.repo, "status", "--porcelain") == ""
    assert (small.repo / "large").read_bytes() == FILE
