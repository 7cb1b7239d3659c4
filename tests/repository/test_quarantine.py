"""Tests that a harvest is imported completely or not at all, with real git."""

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.repository.incoming import quarantine as harvest
from orchestrator.repository.incoming.packed_work import Harvested
from tests.assurance.fuzz.objects import Thing, number, raw_delta, whole
from tests.support.quarantine import BRANCH, Handover
from tests.support.repository import git, make_repository


def test_valid_commits_are_imported(handover: Handover) -> None:
    tip = handover.hand_over(handover.commit_files(new="text\n"))
    assert handover.bring_in() == Harvested(tip, ())
    assert git(handover.repo, "rev-parse", BRANCH) == tip
    assert git(handover.repo, "show", f"{tip}:new") == "text"
    assert not handover.quarantine.exists()
    git(handover.repo, "fsck", "--strict")


def test_harvest_without_commits_changes_nothing(handover: Handover) -> None:
    (handover.out / "tip").write_text(handover.base)
    assert handover.bring_in() == Harvested(handover.base, ())
    assert git(handover.repo, "for-each-ref") == handover.refs


def test_leftover_quarantine_is_replaced(handover: Handover) -> None:
    (handover.quarantine / "objects" / "info").mkdir(parents=True)
    (handover.quarantine / "HEAD").write_text("half of it")
    tip = handover.hand_over(handover.commit_files(new="text\n"))
    assert handover.bring_in().tip == tip


def test_merge_commit_is_imported(handover: Handover) -> None:
    first = handover.commit_files(one="1")
    tree = git(handover.clone, "rev-parse", f"{first}^{{tree}}")
    tip = handover.hand_over(handover.commit_tree(tree, first, handover.base))
    assert handover.bring_in().tip == tip


def unrelated(handover: Handover) -> str:
    return handover.commit_tree(git(handover.clone, "rev-parse", "HEAD^{tree}"))


def before_the_base(handover: Handover) -> str:
    return git(handover.clone, "rev-parse", "HEAD~1")


@pytest.mark.parametrize("make", [unrelated, before_the_base])
def test_history_without_the_base_is_refused(
    handover: Handover, make: Callable[[Handover], str]
) -> None:
    tip = make(handover)
    handover.hand_over(tip, objects=f"{tip}\n")
    handover.refused("does not contain the commit that the worker started from")
    assert git(handover.repo, "rev-parse", BRANCH) == handover.base


def test_submodule_dropped_by_a_later_commit_is_refused(handover: Handover) -> None:
    tree = handover.feed(f"160000 commit {handover.base}\tsub\n", "mktree", "--missing")
    middle = handover.commit_tree(tree, handover.base)
    clean = git(handover.clone, "rev-parse", f"{handover.base}^{{tree}}")
    tip = handover.commit_tree(clean, middle)
    handover.hand_over(tip)
    handover.refused("submodule or nested repository: sub")
    assert not handover.has(tip)


@pytest.mark.parametrize("name", [b".git", b".GIT", b"git~1", b".g\xe2\x80\x8cit", b"..", b"."])
def test_name_equivalent_to_dot_git_is_refused(handover: Handover, name: bytes) -> None:
    blob = handover.feed("[core]\n", "hash-object", "-w", "--stdin")
    raw = b"100644 " + name + b"\0" + bytes.fromhex(blob)
    tree = handover.feed(raw, "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
    tip = handover.commit_tree(tree, handover.base)
    handover.hand_over(tip, objects="\n".join((tip, tree, blob)) + "\n")
    handover.refused(r"hasDot(dot|git)?\b")
    assert not handover.has(tip)


@pytest.mark.parametrize("place", ["", "deep/inside/"])
@pytest.mark.parametrize("head", ["HEAD", "head"])
def test_embedded_bare_repository_is_refused(handover: Handover, place: str, head: str) -> None:
    for name in (head, "objects/x", "refs/x", "config"):
        path = handover.clone / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("ref: refs/heads/main\n")
    handover.hand_over(handover.commit_files())
    handover.refused("a commit contains a git directory")


def test_file_named_head_alone_is_accepted(handover: Handover) -> None:
    tip = handover.hand_over(handover.commit_files(HEAD="just a file"))
    assert handover.bring_in().tip == tip


def test_incomplete_pack_is_refused(handover: Handover) -> None:
    tip = handover.commit_files(new="text\n")
    tree = git(handover.clone, "rev-parse", f"{tip}^{{tree}}")
    handover.hand_over(tip, objects=f"{tip}\n{tree}\n")
    handover.refused("`git (index-pack|rev-list)` failed")
    assert not handover.has(tip)


def test_reference_to_a_private_object_is_refused(handover: Handover) -> None:
    """The id of a private commit does not give access to it."""
    git(handover.repo, "checkout", "-q", "-b", "private")
    (handover.repo / "private.txt").write_text("private")
    git(handover.repo, "add", "-A")
    git(handover.repo, "commit", "-qm", "private")
    handover.refs = git(handover.repo, "for-each-ref")
    (handover.out / "tip").write_text(git(handover.repo, "rev-parse", "private"))
    empty = b"PACK" + bytes([0, 0, 0, 2, 0, 0, 0, 0])
    (handover.out / "pack").write_bytes(empty + hashlib.sha1(empty).digest())
    handover.refused("is no commit")


def test_import_does_not_touch_fetched_refs_or_submodules(
    handover: Handover, tmp_path: Path
) -> None:
    """Neither FETCH_HEAD nor a submodule is changed, whatever is configured."""
    inner = make_repository(tmp_path / "inner")
    allowed = ("-c", "protocol.file.allow=always")
    git(handover.repo, *allowed, "submodule", "--quiet", "add", str(inner), "sub")
    git(handover.repo, "config", "fetch.recurseSubmodules", "true")
    fetched = handover.repo / ".git" / "FETCH_HEAD"
    fetched.write_text("user's\n")
    tip = handover.hand_over(handover.commit_files(new="text\n"))
    assert handover.bring_in().tip == tip
    assert fetched.read_text() == "user's\n"
    assert not (handover.repo / ".git" / "modules" / "sub" / "FETCH_HEAD").exists()


@pytest.mark.timeout(150)
def test_delta_bomb_is_refused(handover: Handover) -> None:
    """One byte of a delta copies 64 KiB: five thousand make a file of 320 MB."""
    block = Thing("blob", b"0" * 65536)
    copies = 5000
    delta = number(65536) + number(copies * 65536) + b"\x80" * copies
    entries = (whole(block), raw_delta(block.id, delta))
    body = b"PACK" + struct.pack(">II", 2, len(entries)) + b"".join(entries)
    (handover.out / "pack").write_bytes(body + hashlib.sha1(body).digest())
    (handover.out / "tip").write_text("1" * 40)
    handover.refused("over limit")


def test_empty_tree_that_git_knows_without_its_object_is_imported(handover: Handover) -> None:
    empty = handover.feed("", "hash-object", "-t", "tree", "--stdin")
    tip = handover.commit_tree(empty, handover.base)
    handover.hand_over(tip, objects=f"{tip}\n")
    assert handover.bring_in().tip == tip
    assert git(handover.repo, "fsck", "--strict", "--no-dangling") == ""


def test_too_many_files_are_refused(handover: Handover, monkeypatch: pytest.MonkeyPatch) -> None:
    """No directory alone has too many entries."""
    monkeypatch.setattr(harvest, "MAX_ENTRIES", 50)
    for folder in ("a", "b"):
        (handover.clone / folder).mkdir()
    files = {f"{folder}/f{n}": "same" for folder in ("a", "b") for n in range(30)}
    tip = handover.hand_over(handover.commit_files(**files))
    handover.refused("too many")
    assert not handover.has(tip)


def test_files_too_large_to_check_out_are_refused(
    handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small pack of zeros unpacks to a large file."""
    monkeypatch.setattr(harvest, "MAX_CHECKOUT", 1_000_000)
    tip = handover.hand_over(handover.commit_files(zeros="0" * 2_000_000))
    assert (handover.out / "pack").stat().st_size < 20_000
    handover.refused("too many to check out|too much")
    assert not handover.has(tip)


def test_file_at_many_paths_counts_each_time(
    handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "MAX_CHECKOUT", 1_000_000)
    tip = handover.hand_over(
        handover.commit_files(**{f"zeros{n}": "0" * 300_000 for n in range(4)})
    )
    handover.refused("too many to check out")
    assert not handover.has(tip)
