"""Tests of the rules for the trees of all new commits."""

import hashlib
import zlib
from pathlib import Path

import pytest

from orchestrator.repository.git import object_reader as reader
from orchestrator.repository.incoming import quarantine as harvest
from orchestrator.repository.repository import Repository
from tests.support.errors import raises
from tests.support.quarantine import Handover
from tests.support.repository import git

BARE = ("HEAD", "objects/x", "refs/x", "config")


@pytest.fixture(autouse=True, params=["here", "in a separate process"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Check the trees in this process, which is the way for few, or in a separate process."""
    if request.param != "here":
        monkeypatch.setattr(harvest, "_READ_HERE", 0)
    return str(request.param)


@pytest.fixture
def handover(repo: Path, tmp_path: Path) -> Handover:
    """Return a repository with a bare repository among its test data."""
    _write(repo / "tests" / "data.git", "user's\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "data")
    return Handover(repo, tmp_path)


def _write(directory: Path, text: str) -> None:
    for name in BARE:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def test_git_directory_of_the_base_is_accepted(handover: Handover) -> None:
    tip = handover.hand_over(handover.commit_files(new="text\n"))
    assert handover.bring_in().tip == tip


@pytest.mark.parametrize("name", BARE)
def test_changed_git_directory_of_the_base_is_refused(handover: Handover, name: str) -> None:
    (handover.clone / "tests" / "data.git" / name).write_text("worker's\n")
    handover.hand_over(handover.commit_files())
    handover.refused("a commit contains a git directory")


def test_git_directory_dropped_by_a_later_commit_is_refused(handover: Handover) -> None:
    _write(handover.clone / "mine", "worker's\n")
    handover.commit_files()
    git(handover.clone, "rm", "-rq", "mine")
    handover.hand_over(handover.commit_files(new="text\n"))
    handover.refused("a commit contains a git directory")


def test_reserved_name_dropped_by_a_later_commit_is_refused(handover: Handover) -> None:
    handover.commit_files(**{".architect-parallel-7": "x"})
    (handover.clone / ".architect-parallel-7").unlink()
    handover.hand_over(handover.commit_files(new="text\n"))
    handover.refused("reserved for workers' worktrees: .architect-parallel-7")


def _crafted(handover: Handover, mode: bytes, name: bytes, object_id: str, *more: str) -> None:
    """Hand over a commit with one entry of any mode."""
    raw = mode + b" " + name + b"\0" + bytes.fromhex(object_id)
    tree = handover.feed(raw, "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
    tip = handover.commit_tree(tree, handover.base)
    handover.hand_over(tip, objects="\n".join((tip, tree, *more)) + "\n")


@pytest.mark.parametrize("mode", [b"160000", b"140000", b"10000", b"60755", b"1000000"])
def test_unusual_submodule_mode_is_refused(handover: Handover, mode: bytes) -> None:
    _crafted(handover, mode, b"odd", handover.base)
    handover.refused("a commit adds a submodule or nested repository: odd")


@pytest.mark.parametrize("mode", [b"40000", b"40755", b"1040000"])
def test_unusual_directory_mode_is_checked(handover: Handover, mode: bytes) -> None:
    inner = handover.feed(f"160000 commit {handover.base}\tinner\n", "mktree")
    _crafted(handover, mode, b"odd", inner, inner)
    handover.refused("a commit adds a submodule or nested repository: inner")


@pytest.mark.parametrize("mode", [b"120000", b"120777"])
@pytest.mark.parametrize("target", ["", "x/" * 2048, "a\0b", "\0"])
def test_invalid_link_target_is_refused(handover: Handover, mode: bytes, target: str) -> None:
    blob = handover.feed(target, "hash-object", "-w", "--stdin")
    _crafted(handover, mode, b"link", blob, blob)
    links = "a committed symbolic link has (an empty or too long target|a target with a NUL byte)"
    handover.refused(links)


def test_longest_link_target_is_accepted(handover: Handover) -> None:
    (handover.clone / "link").symlink_to("x/" * 2047 + "x")
    tip = handover.hand_over(handover.commit_files())
    assert handover.bring_in().tip == tip


@pytest.mark.parametrize(("name", "depth"), [(b"d" * 200, 30), (b"dd", 1500)])
def test_too_long_path_is_refused(handover: Handover, name: bytes, depth: int) -> None:
    found = handover.feed("text\n", "hash-object", "-w", "--stdin")
    made, mode = [found], b"100644"
    for _ in range(depth):
        raw = mode + b" " + name + b"\0" + bytes.fromhex(found)
        found, mode = hashlib.sha1(b"tree %d\0" % len(raw) + raw).hexdigest(), b"40000"
        path = handover.clone / ".git" / "objects" / found[:2] / found[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(b"tree %d\0" % len(raw) + raw))
        made.append(found)
    tip = handover.commit_tree(found, handover.base)
    handover.hand_over(tip, objects="\n".join((tip, *made)) + "\n")
    handover.refused("a path of a committed file is too long to check out")


def test_too_long_name_is_refused(handover: Handover) -> None:
    blob = handover.feed("text\n", "hash-object", "-w", "--stdin")
    _crafted(handover, b"100644", b"x" * 256, blob, blob)
    handover.refused("a path of a committed file is too long to check out")


def test_file_dropped_by_a_later_commit_counts(
    handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "MAX_CHECKOUT", 100_000)
    handover.commit_files(large="x" * 200_000)
    (handover.clone / "large").unlink()
    handover.hand_over(handover.commit_files(new="text\n"))
    handover.refused("too many to check out")


@pytest.fixture
def nested(handover: Handover) -> list[str]:
    """Return trees of 36 bytes, each of which contains the previous one."""
    made = [handover.feed("", "mktree")]
    for _ in range(12):
        made.append(handover.feed(f"040000 tree {made[-1]}\tdirectory\n", "mktree"))
    return made


def _hand_over_commits(handover: Handover, trees: list[str]) -> str:
    tip = handover.base
    for tree in (*trees, git(handover.clone, "rev-parse", f"{handover.base}^{{tree}}")):
        tip = handover.commit_tree(tree, tip)
    return handover.hand_over(tip)


def test_each_tree_is_read_once(
    handover: Handover, nested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit contains the previous tree: repeated reads would take quadratic time."""
    monkeypatch.setattr(harvest, "MAX_TREES", 12 * 36)
    tip = _hand_over_commits(handover, nested)
    assert handover.bring_in().tip == tip


@pytest.mark.parametrize(
    ("bound", "value", "said"),
    [
        ("MAX_TREES", 12 * 36 - 1, "directories of the new commits are too large"),
        ("MAX_TREE", 35, "directories of the new commits are too large"),
        ("MAX_PATHS", 767, "the paths of a commit have more than 767 bytes"),
        ("MAX_COMMITS", 12, "more than 12 new commits"),
        ("MAX_OBJECTS", 26, "more than 26 new git objects"),
        ("MAX_MESSAGE", 150, "a commit or tag object has [0-9]+ bytes"),
    ],
)
def test_trees_over_a_bound_are_refused(
    handover: Handover, nested: list[str], monkeypatch: pytest.MonkeyPatch,
    bound: str, value: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(harvest, bound, value)
    _hand_over_commits(handover, nested)
    handover.refused(said)


def test_paths_up_to_the_bound_are_accepted(
    handover: Handover, nested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "MAX_PATHS", sum(10 * depth - 1 for depth in range(1, 13)))
    tip = _hand_over_commits(handover, nested)
    assert handover.bring_in().tip == tip


def test_content_of_the_base_is_not_bounded(
    handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = int(git(handover.repo, "cat-file", "-s", f"{handover.base}^{{tree}}"))
    monkeypatch.setattr(harvest, "MAX_TREES", root + 40)
    tip = handover.hand_over(handover.commit_files(new="text\n"))
    assert handover.bring_in().tip == tip


def test_killed_reader_is_a_refusal(
    handover: Handover, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(harvest, "_TREE_RULES", "import os; os.kill(os.getpid(), 9)")
    tip = handover.hand_over(handover.commit_files(new="text\n"))
    if place == "here":
        assert handover.bring_in().tip == tip
    else:
        handover.refused("was killed")


def test_end_of_git_is_a_refusal(handover: Handover, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_BATCH", ("cat-file", "--no-such-option"))
    handover.hand_over(handover.commit_files(new="text\n"))
    handover.refused("is missing|`git cat-file` failed")


def test_directory_that_git_did_not_deliver_is_a_refusal(
    handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git may be killed for its CPU time when it has printed the size of an object."""
    half = '!while read -r name; do echo "$name tree 31"; exit; done'
    monkeypatch.setattr(reader, "_BATCH", ("-c", f"alias.half={half}", "half"))
    handover.hand_over(handover.commit_files(new="text\n"))
    handover.refused("git ended before it had read all directories")


def test_missing_files_of_the_base_are_an_error(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    tree = git(repo, "rev-parse", "HEAD^{tree}")
    blob = git(repo, "hash-object", "-w", "a.txt")
    git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},new")
    tip = git(repo, "commit-tree", "-p", base, "-m", "new", git(repo, "write-tree"))
    (repo / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    repository = Repository(repo)
    with raises("commit.files-missing", base):
        harvest.check_trees(repository.git, base=base, tip=tip, repository=repository)
