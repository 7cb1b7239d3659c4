"""What may lie in the trees of new commits: all of them, not the last one's alone."""

from pathlib import Path

import pytest

from tests.support.repository import git
from tests.unit.test_harvest_import import Ground

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
    ground.refused("a git directory lies in the tree")


def test_one_that_a_later_commit_drops_is_refused(ground: Ground) -> None:
    _write(ground.clone / "mine", "worker's\n")
    ground.commit_files()
    git(ground.clone, "rm", "-rq", "mine")
    ground.hand_over(ground.commit_files(new="text\n"))
    ground.refused("a git directory lies in the tree")


def test_a_worktrees_name_that_a_later_commit_drops_is_refused(ground: Ground) -> None:
    ground.commit_files(**{".architect-parallel-7": "x"})
    (ground.clone / ".architect-parallel-7").unlink()
    ground.hand_over(ground.commit_files(new="text\n"))
    ground.refused("where workers' worktrees are: .architect-parallel-7")


@pytest.mark.parametrize("target", ["", "x/" * 2048])
def test_a_link_that_cannot_be_made_is_refused(ground: Ground, target: str) -> None:
    blob = ground.feed(target, "hash-object", "-w", "--stdin")
    tree = ground.feed(f"120000 blob {blob}\tlink\n", "mktree")
    tip = ground.commit_tree(tree, ground.base)
    ground.hand_over(tip, objects="\n".join((tip, tree, blob)) + "\n")
    ground.refused("a symbolic link is empty or too long")


def test_the_longest_link_there_is_comes_in(ground: Ground) -> None:
    (ground.clone / "link").symlink_to("x/" * 2047 + "x")
    tip = ground.hand_over(ground.commit_files())
    assert ground.bring_in().tip == tip
