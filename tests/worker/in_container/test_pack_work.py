"""What the harvest reads of a worker's store and tree, and what it never does: by itself."""

import os
import stat
from pathlib import Path

import pytest

from orchestrator.worker.in_container.pack_work import NESTED, Harvest, Places
from tests.support.repository import git

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
    places = (str(store.parent / name) for name in ("tree", "store", "git", "objects", "out"))
    return Harvest(Places(*places)).resolve("HEAD")


def test_a_ref_leads_to_a_commit(store: Path, outside: Path) -> None:
    (store / "HEAD").write_text("ref: refs/heads/main\n")
    (store / "refs" / "heads" / "main").write_text(outside.read_text())
    assert resolved(store) == ID


def test_a_link_is_not_followed(store: Path, outside: Path) -> None:
    (store / "HEAD").symlink_to(outside)
    assert resolved(store) is None


def test_a_ref_leads_nowhere_else(store: Path, outside: Path) -> None:
    (store / "HEAD").write_text(f"ref: refs/heads/../../../{outside.name}\n")
    assert resolved(store) is None


@pytest.mark.timeout(20)
def test_a_fifo_is_not_waited_for(store: Path) -> None:
    os.mkfifo(store / "HEAD")
    assert resolved(store) is None


def test_an_endless_file_is_read_in_part(store: Path) -> None:
    with (store / "HEAD").open("wb") as file:
        file.truncate(1 << 40)
    assert resolved(store) is None


@pytest.fixture
def harvest(repo: Path, tmp_path: Path) -> Harvest:
    """A harvest of a store that has all that git may keep in one."""
    git(tmp_path, "clone", "-q", "--bare", str(repo), "store")
    for name in ("tree", "out"):
        (tmp_path / name).mkdir()
    objects = repo / ".git" / "objects"
    return Harvest(
        Places(*(str(tmp_path / n) for n in ("tree", "store", "store")), str(objects), "out")
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_objects_alone_are_left_in_a_store(harvest: Harvest, tmp_path: Path) -> None:
    objects = tmp_path / "store" / "objects"
    git(tmp_path / "store", "repack", "-adq", "--write-bitmap-index")
    git(tmp_path / "store", "commit-graph", "write", "--reachable")
    (objects / "info" / "alternates").write_text("/nowhere\n")
    (objects / "pack" / "multi-pack-index").write_text("lies")
    (objects / "ab").mkdir()
    (objects / "ab" / ("c" * 38)).write_text("an object, or not")
    os.mkfifo(objects / "ab" / ("d" * 38))
    (objects / "ab" / "tmp_obj_x").write_text("x")
    (objects / "cd").symlink_to(tmp_path)
    harvest.tidy_store()
    assert names(objects) == ["ab", "pack"]
    assert names(objects / "ab") == ["c" * 38]
    assert {path.suffix for path in (objects / "pack").iterdir()} == {".idx", ".pack"}


def test_a_link_in_the_place_of_all_objects_is_not_followed(
    harvest: Harvest, tmp_path: Path
) -> None:
    objects = tmp_path / "store" / "objects"
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "file").touch()
    objects.rename(tmp_path / "aside")
    objects.symlink_to(trap)
    harvest.tidy_store()
    assert names(objects) == []
    assert names(trap) == ["file"]


def test_of_an_overlay_only_what_was_written_is_looked_at(tmp_path: Path) -> None:
    tree, upper = tmp_path / "tree", tmp_path / "upper"
    for path in (tree / "new", tree / "old", upper / "new"):
        path.mkdir(parents=True)
        os.mkfifo(path / "pipe")
    (tree / "new" / ".git").mkdir()
    (upper / "new" / ".git").mkdir()
    # What the base had and the worker deleted: in the tree there is nothing.
    os.mknod(upper / "gone", stat.S_IFCHR)
    places = (str(tmp_path / name) for name in ("tree", "store", "git", "objects", "out"))
    harvest = Harvest(Places(*places))
    harvest.tidy(str(upper))
    assert sorted(harvest.notes) == [
        "nested repository, its files were kept as ordinary files: new/.git",
        "special file removed: new/pipe",
    ]
    assert sorted(path.name for path in (tree / "new").iterdir()) == [NESTED]
    assert (tree / "old" / "pipe").exists()
