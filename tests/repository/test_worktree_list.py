"""Tests of the pointers between worktrees and git directories."""

import os
from pathlib import Path

import pytest

from orchestrator.repository.checkouts.worktree_list import all_worktrees
from orchestrator.repository.repository import Repository
from tests.support.repository import git


@pytest.mark.parametrize("pointer", [b"", b"\0" * 20_000, b"/dev/zero/.git\n", b"../..\n", None])
def test_broken_pointer_is_a_worktree_that_is_not_there(repo: Path, pointer: bytes | None) -> None:
    place = repo / ".git" / "worktrees" / "broken"
    place.mkdir(parents=True)
    (place / "HEAD").write_text("ref: refs/heads/main\n")
    if pointer is None:
        os.mkfifo(place / "gitdir")
    else:
        (place / "gitdir").write_bytes(pointer)

    current, broken = all_worktrees(Repository(repo))

    assert (current.path, current.is_present) == (repo, True)
    assert (broken.git_dir, broken.head, broken.is_present) == (place, "refs/heads/main", False)


def test_worktree_with_a_line_break_in_its_path_is_found(repo: Path, tmp_path: Path) -> None:
    tree = tmp_path / "a\nb"
    git(repo, "worktree", "add", "-q", "-b", "side", str(tree))
    _, linked = all_worktrees(Repository(repo))
    assert (linked.path, linked.head, linked.is_present) == (tree, "refs/heads/side", True)
