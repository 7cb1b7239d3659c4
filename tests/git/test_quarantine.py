"""What a worker hands over is checked whole, or nothing of it is let in. Real git, no container."""

import hashlib
import json
import os
import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import RepositoryError
from orchestrator.git import quarantine as harvest
from orchestrator.git.quarantine import Harvested, HarvestRefusedError, Origin, import_harvest
from orchestrator.git.repository import Repository
from orchestrator.workspace.private_git import base_objects
from tests.assurance.fuzz.objects import Thing, number, raw_delta, whole
from tests.support.repository import git, make_repository

BRANCH = "architect/parallel-1"
UNREADABLE = ("unknown what was left out: the harvest's notes are unreadable",)


class Ground:
    """A repository with a worker's branch, the worker's own clone, and what it hands over."""

    def __init__(self, repo: Path, tmp_path: Path) -> None:
        self.repo = repo
        self.out = tmp_path / "out"
        self.out.mkdir()
        self.base = git(repo, "rev-parse", "HEAD")
        self.repository = Repository(repo)
        self.repository.claim([BRANCH], self.base)
        objects = tmp_path / "objects"
        shallow = base_objects(self.repository, self.base, objects, history="full")
        self.origin = Origin(base=self.base, objects=objects, shallow=shallow)
        self.quarantine = tmp_path / "quarantine"
        self.clone = tmp_path / "clone"
        git(tmp_path, "clone", "-q", str(repo), str(self.clone))
        git(self.clone, "config", "user.name", "w")
        git(self.clone, "config", "user.email", "w@example.org")
        self.refs = git(repo, "for-each-ref")

    def feed(self, text: str | bytes, *arguments: str) -> str:
        """Run git in the worker's clone with something to read."""
        data = text if isinstance(text, bytes) else text.encode()
        done = subprocess.run(
            ["git", *arguments], cwd=self.clone, input=data, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def commit_tree(self, tree: str, *parents: str) -> str:
        words = [word for parent in parents for word in ("-p", parent)]
        return self.feed("crafted", "commit-tree", tree, *words)

    def commit_files(self, **files: str) -> str:
        for name, text in files.items():
            (self.clone / name).write_text(text)
        git(self.clone, "add", "-A")
        git(self.clone, "commit", "-qm", "work")
        return git(self.clone, "rev-parse", "HEAD")

    def hand_over(self, tip: str, objects: str | None = None) -> str:
        """Write pack and tip; `objects` to pack other objects than those of base..tip."""
        arguments = ("pack-objects", "-q", "--stdout", *([] if objects else ["--revs", "--thin"]))
        with (self.out / "pack").open("wb") as pack:
            subprocess.run(
                ["git", *arguments],
                cwd=self.clone,
                input=(objects or f"{tip}\n^{self.base}\n").encode(),
                stdout=pack,
                check=True,
            )
        (self.out / "tip").write_text(tip)
        return tip

    def bring_in(self) -> Harvested:
        return import_harvest(
            self.repository,
            out=self.out,
            quarantine=self.quarantine,
            branch=BRANCH,
            origin=self.origin,
        )

    def refused(self, said: str) -> None:
        """Hold that it is refused, and that nothing came in."""
        with pytest.raises(HarvestRefusedError, match=said):
            self.bring_in()
        assert git(self.repo, "for-each-ref") == self.refs
        assert not self.quarantine.exists()

    def has(self, object_id: str) -> bool:
        done = subprocess.run(["git", "cat-file", "-e", object_id], cwd=self.repo, check=False)
        return done.returncode == 0


@pytest.fixture
def ground(repo: Path, tmp_path: Path) -> Ground:
    return Ground(repo, tmp_path)


def test_good_work_is_let_in(ground: Ground) -> None:
    tip = ground.hand_over(ground.commit_files(new="text\n"))
    assert ground.bring_in() == Harvested(tip, ())
    assert git(ground.repo, "rev-parse", BRANCH) == tip
    assert git(ground.repo, "show", f"{tip}:new") == "text"
    assert not ground.quarantine.exists()
    git(ground.repo, "fsck", "--strict")


def test_no_work_moves_nothing(ground: Ground) -> None:
    (ground.out / "tip").write_text(ground.base)
    assert ground.bring_in() == Harvested(ground.base, ())
    assert git(ground.repo, "for-each-ref") == ground.refs


def test_what_a_process_that_died_left_is_not_in_the_way(ground: Ground) -> None:
    (ground.quarantine / "objects" / "info").mkdir(parents=True)
    (ground.quarantine / "HEAD").write_text("half of it")
    tip = ground.hand_over(ground.commit_files(new="text\n"))
    assert ground.bring_in().tip == tip


def test_a_merge_on_top_of_the_base_is_let_in(ground: Ground) -> None:
    first = ground.commit_files(one="1")
    tree = git(ground.clone, "rev-parse", f"{first}^{{tree}}")
    tip = ground.hand_over(ground.commit_tree(tree, first, ground.base))
    assert ground.bring_in().tip == tip


def unrelated(ground: Ground) -> str:
    return ground.commit_tree(git(ground.clone, "rev-parse", "HEAD^{tree}"))


def before_the_base(ground: Ground) -> str:
    return git(ground.clone, "rev-parse", "HEAD~1")


@pytest.mark.parametrize("make", [unrelated, before_the_base])
def test_history_must_be_on_top_of_the_base(ground: Ground, make: Callable[[Ground], str]) -> None:
    tip = make(ground)
    ground.hand_over(tip, objects=f"{tip}\n")
    ground.refused("not on top of its base")
    assert git(ground.repo, "rev-parse", BRANCH) == ground.base


def test_a_submodule_is_refused_even_when_a_later_commit_drops_it(ground: Ground) -> None:
    tree = ground.feed(f"160000 commit {ground.base}\tsub\n", "mktree", "--missing")
    middle = ground.commit_tree(tree, ground.base)
    clean = git(ground.clone, "rev-parse", f"{ground.base}^{{tree}}")
    tip = ground.commit_tree(clean, middle)
    ground.hand_over(tip)
    ground.refused("submodule or nested repository: sub")
    assert not ground.has(tip)


@pytest.mark.parametrize("name", [b".git", b".GIT", b"git~1", b".g\xe2\x80\x8cit", b"..", b"."])
def test_a_name_that_git_takes_for_its_own_is_refused(ground: Ground, name: bytes) -> None:
    blob = ground.feed("[core]\n", "hash-object", "-w", "--stdin")
    raw = b"100644 " + name + b"\0" + bytes.fromhex(blob)
    tree = ground.feed(raw, "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
    tip = ground.commit_tree(tree, ground.base)
    ground.hand_over(tip, objects="\n".join((tip, tree, blob)) + "\n")
    ground.refused(r"hasDot(dot|git)?\b")
    assert not ground.has(tip)


@pytest.mark.parametrize("place", ["", "deep/inside/"])
@pytest.mark.parametrize("head", ["HEAD", "head"])
def test_a_bare_repository_in_disguise_is_refused(ground: Ground, place: str, head: str) -> None:
    for name in (head, "objects/x", "refs/x", "config"):
        path = ground.clone / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("ref: refs/heads/main\n")
    ground.hand_over(ground.commit_files())
    ground.refused("the tree contains a git directory")


def test_a_file_named_head_alone_is_no_repository(ground: Ground) -> None:
    tip = ground.hand_over(ground.commit_files(HEAD="just a file"))
    assert ground.bring_in().tip == tip


def test_a_pack_that_lacks_something_is_refused(ground: Ground) -> None:
    tip = ground.commit_files(new="text\n")
    tree = git(ground.clone, "rev-parse", f"{tip}^{{tree}}")
    ground.hand_over(tip, objects=f"{tip}\n{tree}\n")
    ground.refused("`git (index-pack|rev-list)` failed")
    assert not ground.has(tip)


def test_an_object_that_it_was_not_given_cannot_be_claimed(ground: Ground) -> None:
    """The id of a commit beside the base is no key to it."""
    git(ground.repo, "checkout", "-q", "-b", "private")
    (ground.repo / "private.txt").write_text("private")
    git(ground.repo, "add", "-A")
    git(ground.repo, "commit", "-qm", "private")
    ground.refs = git(ground.repo, "for-each-ref")
    (ground.out / "tip").write_text(git(ground.repo, "rev-parse", "private"))
    empty = b"PACK" + bytes([0, 0, 0, 2, 0, 0, 0, 0])
    (ground.out / "pack").write_bytes(empty + hashlib.sha1(empty).digest())
    ground.refused("`git cat-file` failed")


def object_id(ground: Ground, name: str) -> bytes:
    return git(ground.clone, "rev-parse", name).encode()


def commit_id(ground: Ground) -> bytes:
    return object_id(ground, "HEAD")


NO_ID = "no commit id"
TIPS: dict[str, tuple[Callable[[Ground], bytes], str]] = {
    "empty": (lambda _: b"", NO_ID),
    "a ref": (lambda _: b"refs/heads/main", NO_ID),
    "an option": (lambda _: b"--help", NO_ID),
    "upper case": (lambda ground: commit_id(ground).upper(), NO_ID),
    "too short": (lambda ground: commit_id(ground)[:39], NO_ID),
    "two of them": (lambda ground: b"\n".join([commit_id(ground)] * 2), NO_ID),
    "binary": (lambda _: bytes(range(256)), NO_ID),
    "endless": (lambda _: b"0" * 10_000_000, NO_ID),
    "of nothing": (lambda _: b"1" * 40, "`git cat-file` failed"),
    "of a tree": (lambda ground: object_id(ground, "HEAD^{tree}"), "not a commit"),
    "of a file": (lambda ground: object_id(ground, "HEAD:a.txt"), "not a commit"),
}


@pytest.mark.parametrize("case", TIPS)
def test_a_tip_that_is_no_commit_is_refused(ground: Ground, case: str) -> None:
    make, said = TIPS[case]
    ground.hand_over(ground.commit_files(work="work"))
    (ground.out / "tip").write_bytes(make(ground))
    ground.refused(said)


def test_a_tag_is_no_commit(ground: Ground) -> None:
    tip = ground.commit_files(new="x")
    git(ground.clone, "tag", "-a", "-m", "tag", "v1", tip)
    tag = git(ground.clone, "rev-parse", "v1")
    ground.hand_over(tag)
    ground.refused("not a commit")


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


@pytest.mark.timeout(20)
@pytest.mark.parametrize("change", [as_fifo, as_link, as_directory, as_nothing])
@pytest.mark.parametrize("name", ["pack", "tip"])
def test_what_is_no_file_is_not_opened(
    ground: Ground, name: str, change: Callable[[Path], None]
) -> None:
    tip = ground.hand_over(ground.commit_files(new="x"))
    change(ground.out / name)
    ground.refused(f"`{name}`")
    assert not ground.has(tip)


PACKS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "garbage": lambda _: os.urandom(100_000),
    "cut off": lambda pack: pack[:-10],
    "one bit wrong": lambda pack: pack[:40] + bytes([pack[40] ^ 1]) + pack[41:],
    "more than it says": lambda pack: pack + b"x",
    "a count of four thousand million": lambda pack: pack[:8] + b"\xff\xff\xff\xff" + pack[12:],
    "another version": lambda pack: pack[:4] + b"\0\0\0\x09" + pack[8:],
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", PACKS)
def test_a_broken_pack_is_refused(ground: Ground, case: str) -> None:
    tip = ground.hand_over(ground.commit_files(new="x"))
    pack = ground.out / "pack"
    pack.write_bytes(PACKS[case](pack.read_bytes()))
    ground.refused("`git index-pack` failed")
    assert not ground.has(tip)


def test_a_pack_beyond_its_limit_is_refused(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "MAX_PACK", 10_000)
    ground.hand_over(ground.commit_files(new=os.urandom(20_000).hex()))
    ground.refused("exceeds maximum allowed size")


def test_files_beyond_the_workers_own_room_are_refused(ground: Ground) -> None:
    ground.origin = replace(ground.origin, room=1000)
    tip = ground.hand_over(ground.commit_files(large="x" * 2000))
    ground.refused("too many to check out")
    assert not ground.has(tip)


@pytest.mark.parametrize("name", ["tip", "notes"])
def test_an_endless_file_is_read_in_part(ground: Ground, name: str) -> None:
    ground.hand_over(ground.commit_files(new="x"))
    with (ground.out / name).open("wb") as file:
        file.truncate(1 << 40)
    if name == "tip":
        ground.refused(NO_ID)
    else:
        assert ground.bring_in().notes == UNREADABLE


def test_what_the_users_own_git_fetched_stays(ground: Ground, tmp_path: Path) -> None:
    """Neither what was fetched last nor a submodule is touched, whatever is configured."""
    inner = make_repository(tmp_path / "inner")
    allowed = ("-c", "protocol.file.allow=always")
    git(ground.repo, *allowed, "submodule", "--quiet", "add", str(inner), "sub")
    git(ground.repo, "config", "fetch.recurseSubmodules", "true")
    fetched = ground.repo / ".git" / "FETCH_HEAD"
    fetched.write_text("user's\n")
    tip = ground.hand_over(ground.commit_files(new="text\n"))
    assert ground.bring_in().tip == tip
    assert fetched.read_text() == "user's\n"
    assert not (ground.repo / ".git" / "modules" / "sub" / "FETCH_HEAD").exists()


@pytest.mark.timeout(60)
def test_a_delta_that_stands_for_too_much_is_refused(ground: Ground) -> None:
    """A byte of it copies 64 KiB: five thousand make a file of 320 MB, in the host's memory."""
    block = Thing("blob", b"0" * 65536)
    copies = 5000
    delta = number(65536) + number(copies * 65536) + b"\x80" * copies
    entries = (whole(block), raw_delta(block.id, delta))
    body = b"PACK" + struct.pack(">II", 2, len(entries)) + b"".join(entries)
    (ground.out / "pack").write_bytes(body + hashlib.sha1(body).digest())
    (ground.out / "tip").write_text("1" * 40)
    ground.refused("over limit")


def test_too_many_files_are_refused(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harvest, "MAX_ENTRIES", 50)
    tip = ground.hand_over(ground.commit_files(**{f"f{n}": "same" for n in range(60)}))
    ground.refused("too many")
    assert not ground.has(tip)


def test_files_too_large_to_check_out_are_refused(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small pack of zeros unpacks to a large file."""
    monkeypatch.setattr(harvest, "MAX_CHECKOUT", 1_000_000)
    tip = ground.hand_over(ground.commit_files(zeros="0" * 2_000_000))
    assert (ground.out / "pack").stat().st_size < 20_000
    ground.refused("too many to check out|too much")
    assert not ground.has(tip)


def test_one_file_at_many_places_counts_each_time(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "MAX_CHECKOUT", 1_000_000)
    tip = ground.hand_over(ground.commit_files(**{f"zeros{n}": "0" * 300_000 for n in range(4)}))
    ground.refused("too many to check out")
    assert not ground.has(tip)


def test_a_branch_that_moved_meanwhile_is_left_alone(ground: Ground) -> None:
    ground.hand_over(ground.commit_files(new="x"))
    other = git(ground.repo, "rev-parse", "HEAD~1")
    git(ground.repo, "update-ref", f"refs/heads/{BRANCH}", other)
    with pytest.raises(RepositoryError):
        ground.bring_in()
    assert git(ground.repo, "rev-parse", BRANCH) == other


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
def test_notes_are_cleaned_and_bounded(
    ground: Ground, content: str, expected: tuple[str, ...]
) -> None:
    (ground.out / "tip").write_text(ground.base)
    (ground.out / "notes").write_text(content)
    assert ground.bring_in().notes == expected


def test_notes_that_are_a_link_are_not_read(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('["sesame"]')
    (ground.out / "tip").write_text(ground.base)
    (ground.out / "notes").symlink_to(tmp_path / "secret")
    assert ground.bring_in().notes == ()
