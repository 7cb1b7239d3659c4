"""What may lie in the trees of new commits: all of them, not the last one's alone."""

import hashlib
import zlib
from pathlib import Path

import pytest

from orchestrator.git import quarantine as harvest
from tests.git.test_quarantine import Ground
from tests.support.repository import git

BARE = ("HEAD", "objects/x", "refs/x", "config")


@pytest.fixture
def ground(repo: Path, tmp_path: Path) -> Ground:
    """A repository that has a bare one among the data of its tests."""
    _write(repo / "tests" / "data.git", "user's\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "data")
    return Ground(repo, tmp_path)


def _write(directory: Path, text: str) -> None:
    for name in BARE:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def test_a_git_directory_of_the_base_may_stay(ground: Ground) -> None:
    tip = ground.hand_over(ground.commit_files(new="text\n"))
    assert ground.bring_in().tip == tip


@pytest.mark.parametrize("name", BARE)
def test_a_git_directory_of_the_base_may_not_be_changed(ground: Ground, name: str) -> None:
    (ground.clone / "tests" / "data.git" / name).write_text("worker's\n")
    ground.hand_over(ground.commit_files())
    ground.refused("the tree contains a git directory")


def test_one_that_a_later_commit_drops_is_refused(ground: Ground) -> None:
    _write(ground.clone / "mine", "worker's\n")
    ground.commit_files()
    git(ground.clone, "rm", "-rq", "mine")
    ground.hand_over(ground.commit_files(new="text\n"))
    ground.refused("the tree contains a git directory")


def test_a_worktrees_name_that_a_later_commit_drops_is_refused(ground: Ground) -> None:
    ground.commit_files(**{".architect-parallel-7": "x"})
    (ground.clone / ".architect-parallel-7").unlink()
    ground.hand_over(ground.commit_files(new="text\n"))
    ground.refused("reserved for workers' worktrees: .architect-parallel-7")


def _crafted(ground: Ground, mode: bytes, name: bytes, object_id: str, *more: str) -> None:
    """Hand over a commit with one entry of any mode."""
    raw = mode + b" " + name + b"\0" + bytes.fromhex(object_id)
    tree = ground.feed(raw, "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
    tip = ground.commit_tree(tree, ground.base)
    ground.hand_over(tip, objects="\n".join((tip, tree, *more)) + "\n")


@pytest.mark.parametrize("mode", [b"160000", b"140000", b"10000", b"60755", b"1000000"])
def test_what_git_takes_for_a_submodule_is_refused(ground: Ground, mode: bytes) -> None:
    _crafted(ground, mode, b"odd", ground.base)
    ground.refused("a commit adds a submodule or nested repository: odd")


@pytest.mark.parametrize("mode", [b"40000", b"40755", b"1040000"])
def test_what_git_takes_for_a_directory_is_looked_into(ground: Ground, mode: bytes) -> None:
    inner = ground.feed(f"160000 commit {ground.base}\tinner\n", "mktree")
    _crafted(ground, mode, b"odd", inner, inner)
    ground.refused("a commit adds a submodule or nested repository: inner")


@pytest.mark.parametrize("mode", [b"120000", b"120777"])
@pytest.mark.parametrize("target", ["", "x/" * 2048, "a\0b", "\0"])
def test_a_link_that_cannot_be_made_is_refused(ground: Ground, mode: bytes, target: str) -> None:
    blob = ground.feed(target, "hash-object", "-w", "--stdin")
    _crafted(ground, mode, b"link", blob, blob)
    ground.refused("a symbolic link has (an empty or too long target|a target with a NUL byte)")


def test_the_longest_link_there_is_comes_in(ground: Ground) -> None:
    (ground.clone / "link").symlink_to("x/" * 2047 + "x")
    tip = ground.hand_over(ground.commit_files())
    assert ground.bring_in().tip == tip


@pytest.mark.parametrize(("name", "depth"), [(b"d" * 200, 30), (b"d", 3000)])
def test_a_path_that_is_too_long_is_refused(ground: Ground, name: bytes, depth: int) -> None:
    found = ground.feed("text\n", "hash-object", "-w", "--stdin")
    made, mode = [found], b"100644"
    for _ in range(depth):
        raw = mode + b" " + name + b"\0" + bytes.fromhex(found)
        found, mode = hashlib.sha1(b"tree %d\0" % len(raw) + raw).hexdigest(), b"40000"
        path = ground.clone / ".git" / "objects" / found[:2] / found[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(b"tree %d\0" % len(raw) + raw))
        made.append(found)
    tip = ground.commit_tree(found, ground.base)
    ground.hand_over(tip, objects="\n".join((tip, *made)) + "\n")
    ground.refused("a path is too long to check out")


def test_a_name_that_is_too_long_is_refused(ground: Ground) -> None:
    blob = ground.feed("text\n", "hash-object", "-w", "--stdin")
    _crafted(ground, b"100644", b"x" * 256, blob, blob)
    ground.refused("a path is too long to check out")


def test_what_a_later_commit_drops_counts(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harvest, "MAX_CHECKOUT", 100_000)
    ground.commit_files(large="x" * 200_000)
    (ground.clone / "large").unlink()
    ground.hand_over(ground.commit_files(new="text\n"))
    ground.refused("too many to check out")


@pytest.fixture
def nested(ground: Ground) -> list[str]:
    """Trees of 36 bytes each of which holds the one before, the first of them an empty one."""
    made = [ground.feed("", "mktree")]
    for _ in range(12):
        made.append(ground.feed(f"040000 tree {made[-1]}\tdirectory\n", "mktree"))
    return made


def _hand_over_commits(ground: Ground, trees: list[str]) -> str:
    tip = ground.base
    for tree in (*trees, git(ground.clone, "rev-parse", f"{ground.base}^{{tree}}")):
        tip = ground.commit_tree(tree, tip)
    return ground.hand_over(tip)


def test_no_tree_is_read_twice(
    ground: Ground, nested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits each of which holds the tree of the one before would take the square of the time."""
    monkeypatch.setattr(harvest, "MAX_TREES", 12 * 36)
    tip = _hand_over_commits(ground, nested)
    assert ground.bring_in().tip == tip


@pytest.mark.parametrize(
    ("bound", "value", "said"),
    [
        ("MAX_TREES", 12 * 36 - 1, "the directories are too large"),
        ("MAX_TREE", 35, "the directories are too large"),
        ("MAX_PATHS", 767, "the paths of a commit have more than 767 bytes"),
        ("MAX_COMMITS", 13, "printed more than 533 bytes"),
        ("MAX_OBJECTS", 26, "more than 26 new objects"),
        ("MAX_MESSAGE", 150, "a commit has [0-9]+ bytes"),
    ],
)
def test_more_than_a_bound_allows_is_refused(
    ground: Ground, nested: list[str], monkeypatch: pytest.MonkeyPatch,
    bound: str, value: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(harvest, bound, value)
    _hand_over_commits(ground, nested)
    ground.refused(said)


def test_paths_up_to_the_bound_come_in(
    ground: Ground, nested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "MAX_PATHS", sum(10 * depth - 1 for depth in range(1, 13)))
    tip = _hand_over_commits(ground, nested)
    assert ground.bring_in().tip == tip


def test_what_the_base_has_is_in_no_bound(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    root = int(git(ground.repo, "cat-file", "-s", f"{ground.base}^{{tree}}"))
    monkeypatch.setattr(harvest, "MAX_TREES", root + 40)
    tip = ground.hand_over(ground.commit_files(new="text\n"))
    assert ground.bring_in().tip == tip


def test_a_reader_that_dies_is_a_refusal(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harvest, "_TREE_RULES", "import os; os.kill(os.getpid(), 9)")
    ground.hand_over(ground.commit_files(new="text\n"))
    ground.refused("exit code -9")
