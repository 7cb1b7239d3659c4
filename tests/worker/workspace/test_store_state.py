"""Tests that every change of a worker's private git store is noticed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.state.worker.worker_directory import Store
from orchestrator.worker.workspace.store_state import is_store_as_created, note_earlier

REF = "refs/heads/architect/parallel-1"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A worker's store as it is created, and the git directory of its harvest."""
    found = Store(root=tmp_path / "worker")
    for git_dir in (found.git, found.harvest):
        for folder in ("objects/info", "objects/pack", "refs/heads/architect"):
            (git_dir / folder).mkdir(parents=True)
        (git_dir / "HEAD").write_text(f"ref: {REF}\n")
        (git_dir / REF).write_text("c0ffee\n")
        (git_dir / "index").write_bytes(b"DIRC")
    (found.git / "objects" / "info" / "alternates").write_text("/objects\n")
    (found.harvest / "made").touch()
    return found


def add_object(git_dir: Path) -> None:
    (git_dir / "objects" / "ab").mkdir()


def replace_objects(git_dir: Path) -> None:
    shutil.rmtree(git_dir / "objects")
    (git_dir / "objects").symlink_to("/")


def link_head(git_dir: Path) -> None:
    (git_dir / "HEAD").rename(git_dir.parent / "elsewhere")
    (git_dir / "HEAD").symlink_to(git_dir.parent / "elsewhere")


def pipe_index(git_dir: Path) -> None:
    (git_dir / "index").unlink()
    os.mkfifo(git_dir / "index")


def test_store_as_created_is_recognized(store: Store, tmp_path: Path) -> None:
    assert is_store_as_created(store, tmp_path / "none")
    shared = (store.harvest / "index").rename(tmp_path / "shared")
    assert is_store_as_created(store, shared)


@pytest.mark.parametrize(
    "change",
    [
        lambda git_dir: (git_dir / "HEAD").write_text("ref: refs/heads/other\n"),
        lambda git_dir: (git_dir / "HEAD").write_text("c0ffee\n"),
        lambda git_dir: (git_dir / REF).write_text("decade\n"),
        lambda git_dir: (git_dir / REF).unlink(),
        lambda git_dir: (git_dir / "index").write_bytes(b"DIRCx"),
        lambda git_dir: (git_dir / "index").write_bytes(b"DIR"),
        lambda git_dir: (git_dir / "packed-refs").touch(),
        add_object,
        replace_objects,
        link_head,
        pipe_index,
    ],
    ids=[
        "head-of-another-branch", "detached-head", "moved-branch", "no-branch", "longer-index",
        "shorter-index", "packed-refs", "an-object", "link-for-objects", "link-for-head",
        "fifo-for-index",
    ],
)  # fmt: skip
def test_changed_store_is_recognized(
    change: Callable[[Path], object], store: Store, tmp_path: Path
) -> None:
    change(store.git)
    assert not is_store_as_created(store, tmp_path / "none")


def test_pack_of_earlier_attempts_is_part_of_a_store_as_created(
    store: Store, tmp_path: Path
) -> None:
    packs = store.git / "objects" / "pack"
    for suffix in (".pack", ".idx", ".rev"):
        (packs / f"pack-c0ffee{suffix}").touch()
    assert not is_store_as_created(store, tmp_path / "none")
    note_earlier(store, "pack-c0ffee")
    assert is_store_as_created(store, tmp_path / "none")
    (packs / "pack-decade.pack").touch()
    assert not is_store_as_created(store, tmp_path / "none")
