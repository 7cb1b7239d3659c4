"""Tests of the import of LFS objects and patches, which may be hostile."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from orchestrator.repository.checkouts.lfs import (
    content_since,
    find_content,
    note_made,
    take_objects,
)
from orchestrator.repository.repository import Repository
from orchestrator.worker.workspace.submodules import keep_patches
from tests.support.lfs import pointer, store, stored, with_content
from tests.support.repository import git

ROOM = 1024**2


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out" / "lfs").mkdir(parents=True)
    return tmp_path / "out"


def hand_over(out: Path, content: bytes, name: str | None = None) -> Path:
    place = out / "lfs" / (name or hashlib.sha256(content).hexdigest())
    place.write_bytes(content)
    return place


def objects(repo: Path) -> list[Path]:
    return [path for path in (repo / ".git" / "lfs").rglob("*") if path.is_file()]


class TestObjects:
    def test_object_with_matching_hash_is_imported(self, repo: Path, out: Path) -> None:
        place = hand_over(out, b"content")
        assert take_objects(Repository(repo), out, room=ROOM) == {place.name}
        assert stored(repo, b"content").read_bytes() == b"content"
        assert len(objects(repo)) == 1

    def test_object_with_wrong_hash_is_not_imported(self, repo: Path, out: Path) -> None:
        hand_over(out, b"content", "a" * 64)
        stored(repo, b"the user's").parent.mkdir(parents=True)
        stored(repo, b"the user's").write_bytes(b"the user's")
        hand_over(out, b"", stored(repo, b"the user's").name)
        assert take_objects(Repository(repo), out, room=ROOM) == frozenset()
        assert objects(repo) == [stored(repo, b"the user's")]

    def test_existing_object_is_not_replaced(self, repo: Path, out: Path) -> None:
        hand_over(out, b"content")
        stored(repo, b"content").parent.mkdir(parents=True)
        stored(repo, b"content").write_bytes(b"the user's")
        assert len(take_objects(Repository(repo), out, room=ROOM)) == 1
        assert stored(repo, b"content").read_bytes() == b"the user's"

    def test_link_and_fifo_are_not_imported(self, repo: Path, out: Path, tmp_path: Path) -> None:
        outside = tmp_path / "secret"
        outside.write_bytes(b"content")
        name = hashlib.sha256(b"content").hexdigest()
        (out / "lfs" / name).symlink_to(outside)
        os.mkfifo(out / "lfs" / ("b" * 64))
        take_objects(Repository(repo), out, room=ROOM)
        assert objects(repo) == []

    def test_linked_directory_is_not_read(self, repo: Path, out: Path, tmp_path: Path) -> None:
        hand_over(out, b"content")
        (out / "lfs").rename(tmp_path / "elsewhere")
        (out / "lfs").symlink_to(tmp_path / "elsewhere")
        take_objects(Repository(repo), out, room=ROOM)
        assert objects(repo) == []

    def test_imported_objects_are_limited_by_the_room(self, repo: Path, out: Path) -> None:
        for letter in (b"a", b"b", b"c"):
            hand_over(out, letter * 400)
        take_objects(Repository(repo), out, room=900)
        assert len(objects(repo)) == 2


class TestPatches:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "submodules.json").write_text(json.dumps({"lib": [0, "1" * 40]}))
        return tmp_path

    def test_a_patch_is_kept(self, root: Path, out: Path) -> None:
        (out / "submodule-0.patch").write_text("patch")
        (note,) = keep_patches(root, out)
        kept = root / "submodule-0.patch"
        assert note == f"changes in the submodule lib are on no branch but kept in {kept}"
        assert kept.read_text() == "patch"

    def test_without_patch_nothing_is_kept(self, root: Path, out: Path) -> None:
        assert keep_patches(root, out) == ()
        assert keep_patches(out, out) == ()

    def test_linked_patch_is_not_followed(self, root: Path, out: Path) -> None:
        (out / "submodule-0.patch").symlink_to("/etc/hostname")
        assert keep_patches(root, out) == ()
        assert not (root / "submodule-0.patch").exists()

    def test_fifo_does_not_block(self, root: Path, out: Path) -> None:
        os.mkfifo(out / "submodule-0.patch")
        (note,) = keep_patches(root, out)
        assert note.endswith("too large to be kept")

    def test_too_large_patch_is_reported(self, root: Path, out: Path) -> None:
        with (out / "submodule-0.patch").open("wb") as file:
            file.truncate(257 * 1024**2)
        (note,) = keep_patches(root, out)
        assert note.endswith("too large to be kept")
        assert not (root / "submodule-0.patch").exists()


def test_only_given_or_created_content_is_provided(tmp_path: Path) -> None:
    """Otherwise a pointer alone would give a worker any LFS content of the user."""
    repo = with_content(tmp_path / "repo", given=b"given")
    repository, run = Repository(repo), tmp_path / "run"
    base = git(repo, "rev-parse", "HEAD")
    given = find_content(repository, base, tmp_path / "index")
    store(repo, b"secret")
    store(repo, b"made")
    for name in ("secret", "made", "given"):
        (repo / f"{name}-2.bin").write_text(pointer(name.encode()))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "by workers")
    (run / "worker-1").mkdir(parents=True)
    note_made(frozenset({stored(repo, b"made").name}), run / "worker-1")
    tip = git(repo, "rev-parse", "HEAD")
    found = content_since(repository, tip, tmp_path / "index", given=given, run=run)
    assert [one.path for one in found.pointers] == ["given-2.bin", "given.bin", "made-2.bin"]
