"""Tests of reading the refs of a worker's store."""

import os
from pathlib import Path

import pytest

from orchestrator.worker.in_container.store_refs import StoreRefs

ID = "1" * 40


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    (path / "refs" / "heads").mkdir(parents=True)
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file beside the store with the id of a commit."""
    path = tmp_path / "outside"
    path.write_text(f"{ID}\n")
    return path


def resolved(store: Path) -> str | None:
    return StoreRefs(str(store)).resolve("HEAD")


def test_ref_is_resolved_to_a_commit(store: Path, outside: Path) -> None:
    (store / "HEAD").write_text("ref: refs/heads/main\n")
    (store / "refs" / "heads" / "main").write_text(outside.read_text())
    assert resolved(store) == ID


def test_symbolic_link_is_not_followed(store: Path, outside: Path) -> None:
    (store / "HEAD").symlink_to(outside)
    assert resolved(store) is None


def test_ref_outside_of_the_store_is_not_resolved(store: Path, outside: Path) -> None:
    (store / "HEAD").write_text(f"ref: refs/heads/../../../{outside.name}\n")
    assert resolved(store) is None


@pytest.mark.timeout(90)
def test_fifo_does_not_block(store: Path) -> None:
    os.mkfifo(store / "HEAD")
    assert resolved(store) is None


def test_endless_file_is_read_up_to_a_limit(store: Path) -> None:
    with (store / "HEAD").open("wb") as file:
        file.truncate(1 << 40)
    assert resolved(store) is None
