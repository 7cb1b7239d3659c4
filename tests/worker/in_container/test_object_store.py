"""Tests of the cleanup of a worker's git store before git reads it."""

import os
from pathlib import Path

import pytest

from orchestrator.worker.in_container.safe_files import tidy_store
from tests.support.repository import git


@pytest.fixture
def store(repo: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", "--bare", str(repo), "store")
    return tmp_path / "store"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_store_keeps_only_objects(store: Path, tmp_path: Path) -> None:
    objects = store / "objects"
    git(store, "repack", "-adq", "--write-bitmap-index")
    git(store, "commit-graph", "write", "--reachable")
    (objects / "info" / "alternates").write_text("/nowhere\n")
    (objects / "pack" / "multi-pack-index").write_text("lies")
    (objects / "ab").mkdir()
    (objects / "ab" / ("c" * 38)).write_text("an object, or not")
    os.mkfifo(objects / "ab" / ("d" * 38))
    (objects / "ab" / "tmp_obj_x").write_text("x")
    (objects / "cd").symlink_to(tmp_path)
    tidy_store(str(store))
    assert names(objects) == ["ab", "pack"]
    assert names(objects / "ab") == ["c" * 38]
    assert {path.suffix for path in (objects / "pack").iterdir()} == {".idx", ".pack"}


def test_link_in_place_of_the_object_directory_is_not_followed(store: Path, tmp_path: Path) -> None:
    objects = store / "objects"
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "file").touch()
    objects.rename(tmp_path / "aside")
    objects.symlink_to(trap)
    tidy_store(str(store))
    assert names(objects) == []
    assert names(trap) == ["file"]
