"""What a harvest hands over beside commits is read as what anybody may have put there."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from orchestrator.lfs import take_objects
from orchestrator.repository import Repository
from orchestrator.submodule_trees import keep_patches
from tests.support.lfs import stored

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
    def test_one_that_is_what_it_is_named_by(self, repo: Path, out: Path) -> None:
        hand_over(out, b"content")
        take_objects(Repository(repo), out, room=ROOM)
        assert stored(repo, b"content").read_bytes() == b"content"
        assert len(objects(repo)) == 1

    def test_another_content_is_not_taken(self, repo: Path, out: Path) -> None:
        hand_over(out, b"content", "a" * 64)
        take_objects(Repository(repo), out, room=ROOM)
        assert objects(repo) == []

    def test_one_that_is_there_stays(self, repo: Path, out: Path) -> None:
        hand_over(out, b"content")
        stored(repo, b"content").parent.mkdir(parents=True)
        stored(repo, b"content").write_bytes(b"the user's")
        take_objects(Repository(repo), out, room=ROOM)
        assert stored(repo, b"content").read_bytes() == b"the user's"

    def test_no_link_and_no_fifo(self, repo: Path, out: Path, tmp_path: Path) -> None:
        outside = tmp_path / "secret"
        outside.write_bytes(b"content")
        name = hashlib.sha256(b"content").hexdigest()
        (out / "lfs" / name).symlink_to(outside)
        os.mkfifo(out / "lfs" / ("b" * 64))
        take_objects(Repository(repo), out, room=ROOM)
        assert objects(repo) == []

    def test_no_link_to_a_directory(self, repo: Path, out: Path, tmp_path: Path) -> None:
        hand_over(out, b"content")
        (out / "lfs").rename(tmp_path / "elsewhere")
        (out / "lfs").symlink_to(tmp_path / "elsewhere")
        take_objects(Repository(repo), out, room=ROOM)
        assert objects(repo) == []

    def test_no_more_than_there_is_room_for(self, repo: Path, out: Path) -> None:
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
        assert note == f"changes in the submodule lib are on no branch, but in {kept}"
        assert kept.read_text() == "patch"

    def test_none_is_none(self, root: Path, out: Path) -> None:
        assert keep_patches(root, out) == ()
        assert keep_patches(out, out) == ()

    def test_a_link_is_not_followed(self, root: Path, out: Path) -> None:
        (out / "submodule-0.patch").symlink_to("/etc/hostname")
        assert keep_patches(root, out) == ()
        assert not (root / "submodule-0.patch").exists()

    def test_a_fifo_is_not_waited_for(self, root: Path, out: Path) -> None:
        os.mkfifo(out / "submodule-0.patch")
        (note,) = keep_patches(root, out)
        assert note.endswith("too large to be kept")

    def test_too_large_is_told(self, root: Path, out: Path) -> None:
        with (out / "submodule-0.patch").open("wb") as file:
            file.truncate(257 * 1024**2)
        (note,) = keep_patches(root, out)
        assert note.endswith("too large to be kept")
        assert not (root / "submodule-0.patch").exists()
