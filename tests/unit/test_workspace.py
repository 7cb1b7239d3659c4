"""Who a worker is on this machine, and what is its own."""

import os
from pathlib import Path

import pytest

from orchestrator.store import change_owner
from orchestrator.workspace import worker_user


def test_no_worker_is_root_and_no_two_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    users = [worker_user(number) for number in range(1, 11)]
    assert len(set(users)) == 10
    assert all(uid >= 20_000 and gid >= 20_000 for uid, gid in users)


def test_the_worker_of_an_ordinary_user_is_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1001)
    assert worker_user(7) == (1000, 1001)


def test_owners_change_in_the_tree_alone(tmp_path: Path) -> None:
    """A link in the base may lead to a file of the host's."""
    outside = tmp_path / "outside"
    outside.touch()
    tree = tmp_path / "tree"
    tree.mkdir()
    # To an ordinary user, following the first would be an error; to root, a change of the second.
    (tree / "theirs").symlink_to("/etc/passwd" if os.getuid() else outside)
    (tree / "file").touch()
    owner = (20_001, 20_001) if os.getuid() == 0 else (os.getuid(), os.getgid())
    change_owner(tree, owner)
    assert (tree / "file").stat().st_uid == owner[0]
    assert (tree / "theirs").lstat().st_uid == owner[0]
    assert outside.stat().st_uid == os.getuid()
