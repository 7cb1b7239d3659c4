"""Tests of harvests with malformed, oversized or special files."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.repository.incoming import quarantine as harvest
from tests.support.quarantine import Handover, object_id
from tests.support.repository import git

UNREADABLE = ("the notes on the worker's packed work are unreadable: files may have been left out",)


def commit_id(handover: Handover) -> bytes:
    return object_id(handover, "HEAD")


NO_ID = "no commit id"
TIPS: dict[str, tuple[Callable[[Handover], bytes], str]] = {
    "empty": (lambda _: b"", NO_ID),
    "a ref": (lambda _: b"refs/heads/main", NO_ID),
    "an option": (lambda _: b"--help", NO_ID),
    "upper case": (lambda handover: commit_id(handover).upper(), NO_ID),
    "too short": (lambda handover: commit_id(handover)[:39], NO_ID),
    "two of them": (lambda handover: b"\n".join([commit_id(handover)] * 2), NO_ID),
    "binary": (lambda _: bytes(range(256)), NO_ID),
    "endless": (lambda _: b"0" * 10_000_000, NO_ID),
    "of nothing": (lambda _: b"1" * 40, "is no commit"),
    "of a tree": (
        lambda handover: object_id(handover, "HEAD^{tree}"),
        "the worker's last commit cannot be imported: the object with its id is no commit",
    ),
    "of a file": (
        lambda handover: object_id(handover, "HEAD:a.txt"),
        "the worker's last commit cannot be imported: the object with its id is no commit",
    ),
}


@pytest.mark.parametrize("case", TIPS)
def test_malformed_tip_is_refused(handover: Handover, case: str) -> None:
    make, said = TIPS[case]
    handover.hand_over(handover.commit_files(work="work"))
    (handover.out / "tip").write_bytes(make(handover))
    handover.refused(said)


def test_tip_that_is_a_tag_is_refused(handover: Handover) -> None:
    tip = handover.commit_files(new="x")
    git(handover.clone, "tag", "-a", "-m", "tag", "v1", tip)
    tag = git(handover.clone, "rev-parse", "v1")
    handover.hand_over(tag)
    handover.refused(
        "the worker's last commit cannot be imported: the object with its id is no commit"
    )


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_nothing(path: Path) -> None:
    path.unlink()


@pytest.mark.timeout(90)
@pytest.mark.parametrize("change", [as_fifo, as_link, as_directory, as_nothing])
@pytest.mark.parametrize("name", ["pack", "tip"])
def test_special_file_is_refused(
    handover: Handover, name: str, change: Callable[[Path], None]
) -> None:
    tip = handover.hand_over(handover.commit_files(new="x"))
    change(handover.out / name)
    handover.refused(f"`{name}`")
    assert not handover.has(tip)


PACKS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "garbage": lambda _: os.urandom(100_000),
    "cut off": lambda pack: pack[:-10],
    "one bit wrong": lambda pack: pack[:40] + bytes([pack[40] ^ 1]) + pack[41:],
    "more than it says": lambda pack: pack + b"x",
    "a count of four thousand million": lambda pack: pack[:8] + b"\xff\xff\xff\xff" + pack[12:],
    "another version": lambda pack: pack[:4] + b"\0\0\0\x09" + pack[8:],
}


@pytest.mark.timeout(150)
@pytest.mark.parametrize("case", PACKS)
def test_a_broken_pack_is_refused(handover: Handover, case: str) -> None:
    tip = handover.hand_over(handover.commit_files(new="x"))
    pack = handover.out / "pack"
    pack.write_bytes(PACKS[case](pack.read_bytes()))
    handover.refused("`git index-pack` failed")
    assert not handover.has(tip)


def test_pack_over_the_limit_is_refused(
    handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "MAX_PACK", 10_000)
    handover.hand_over(handover.commit_files(new=os.urandom(20_000).hex()))
    handover.refused("exceeds maximum allowed size")


def test_files_over_the_workers_room_are_refused(handover: Handover) -> None:
    handover.origin = replace(handover.origin, room=1000)
    tip = handover.hand_over(handover.commit_files(large="x" * 2000))
    handover.refused("too many to check out")
    assert not handover.has(tip)


@pytest.mark.parametrize("name", ["tip", "notes"])
def test_endless_file_is_read_partially(handover: Handover, name: str) -> None:
    handover.hand_over(handover.commit_files(new="x"))
    with (handover.out / name).open("wb") as file:
        file.truncate(1 << 40)
    if name == "tip":
        handover.refused(NO_ID)
    else:
        assert handover.bring_in().notes == UNREADABLE


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('["left out: x"]', ("left out: x",)),
        ('["\\u001b[2Jpaint", 7, null, {"a": 1}]', ("\ufffd[2Jpaint",)),
        (json.dumps(["n"] * 1000), ("n",) * 20),
        (json.dumps(["x" * 10_000]), ("x" * 199 + "…",)),
        ('{"a": 1}', UNREADABLE),
        ("not JSON", UNREADABLE),
        ("[" * 60_000, UNREADABLE),
        (json.dumps(["x" * 100_000]), UNREADABLE),
    ],
)
def test_notes_are_made_harmless_and_bounded(
    handover: Handover, content: str, expected: tuple[str, ...]
) -> None:
    (handover.out / "tip").write_text(handover.base)
    (handover.out / "notes").write_text(content)
    assert handover.bring_in().notes == expected


def test_linked_notes_are_not_read(handover: Handover, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('["sesame"]')
    (handover.out / "tip").write_text(handover.base)
    (handover.out / "notes").symlink_to(tmp_path / "secret")
    assert handover.bring_in().notes == ()
