"""Tests of a worker's user id, and of the ownership of its files."""

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from orchestrator.engine.interface.spec import BindMount
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.checkouts.worktree import open_worktree
from orchestrator.repository.git.command import Git
from orchestrator.repository.repository import Repository
from orchestrator.state.worker.worker_directory import Store
from orchestrator.worker.workspace.layout import (
    AGENT_STEP,
    HARVEST,
    HARVEST_STEP,
    OBJECTS,
    OUT,
    STORE,
    WORKSPACE,
    WRITTEN,
    Mode,
)
from orchestrator.worker.workspace.mounts import Workspace
from orchestrator.worker.workspace.private_git import StoreOptions, base_objects, make_store
from orchestrator.worker.workspace.worker_user import worker_user
from tests.support.parts import seen
from tests.support.repository import git


def test_each_worker_of_root_has_its_own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    users = [worker_user(number) for number in range(1, 11)]
    assert len(set(users)) == 10
    assert all(uid >= 20_000 and gid >= 20_000 for uid, gid in users)


def test_worker_of_an_ordinary_user_has_the_users_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1001)
    assert worker_user(7) == (1000, 1001)


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("strict_umask")
@pytest.mark.parametrize("history", ["full", "shallow"])
def test_objects_are_readable_and_read_only(
    repo: Path, tmp_path: Path, history: Literal["full", "shallow"]
) -> None:
    objects = tmp_path / "objects"
    base_objects(Repository(repo), git(repo, "rev-parse", "HEAD"), objects, history=history)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (objects, *objects.rglob("*"))}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o755}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o444}


def test_worker_gets_only_the_objects_of_the_base(repo: Path, tmp_path: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-q", "--allow-empty", "-m", "private")
    base_objects(Repository(repo), base, tmp_path / "objects", history="full")
    (pack,) = (tmp_path / "objects" / "pack").glob("*.idx")
    held = {line.split()[0] for line in git(repo, "verify-pack", "-v", str(pack)).splitlines()}
    assert base in held
    assert git(repo, "rev-parse", "HEAD") not in held


@pytest.mark.parametrize("mode", ["overlay", "bind"])
def test_worker_can_write_only_to_its_files_and_store(tmp_path: Path, mode: Mode) -> None:
    worktree = Worktree(path=tmp_path / "tree", branch="b", git_dir=tmp_path / "git")
    workspace = Workspace(
        worktree=worktree, store=Store(root=tmp_path / "state"), objects=tmp_path / "objects",
        mode=mode, user=(1, 1), start="c0ffee",
    )  # fmt: skip
    mounts = seen(workspace, AGENT_STEP)
    shared = {m.target: m.read_only for m in mounts if isinstance(m, BindMount)}
    shared.setdefault(WORKSPACE, False)
    assert shared == {WORKSPACE: False, f"{WORKSPACE}/.git": True, STORE: False, OBJECTS: True}
    assert worktree.path not in {m.source for m in mounts if isinstance(m, BindMount)}
    more = {*seen(workspace, HARVEST_STEP)} - {*mounts}
    upper = {WRITTEN: True} if mode == "overlay" else {}
    added = {mount.target: mount.read_only for mount in more if isinstance(mount, BindMount)}
    assert added == {HARVEST: False, OUT: False, **upper}


@pytest.mark.parametrize("mode", ["overlay", "bind"])
def test_read_only_worker_has_read_only_mounts(tmp_path: Path, mode: Mode) -> None:
    workspace = Workspace(
        worktree=Worktree(path=tmp_path / "tree", branch="b", git_dir=tmp_path / "git"),
        store=Store(root=tmp_path / "state"), objects=tmp_path / "objects",
        mode=mode, user=(1, 1), start="c0ffee", read_only=True,
    )  # fmt: skip
    mounts = seen(workspace, AGENT_STEP)
    assert {mount.target: mount.read_only for mount in mounts} == dict.fromkeys(
        (WORKSPACE, f"{WORKSPACE}/.git", STORE, OBJECTS), True
    )
    assert workspace.is_untouched()
    writing = seen(replace(workspace, read_only=False), AGENT_STEP)
    assert {*writing} <= {*seen(workspace, HARVEST_STEP)}
    assert {*writing} == {*seen(workspace, "setup")}


@pytest.mark.parametrize("mode", ["overlay", "bind"])
def test_files_of_the_base_are_not_read_again(repo: Path, tmp_path: Path, mode: Mode) -> None:
    """Git would read files as new as the index again, and write them to the store."""
    base, tree = git(repo, "rev-parse", "HEAD"), repo / ".architect-parallel-1"
    git(repo, "worktree", "add", "-q", "-b", "architect/parallel-1", str(tree))
    worktree = open_worktree(tree, "architect/parallel-1")
    (tmp_path / "state").mkdir()
    options = StoreOptions(
        base=base, start=base, run_base=base, shallow=frozenset(), mode=mode,
        owner=(os.getuid(), os.getgid()), excluded=(),
    )  # fmt: skip
    store = make_store(Repository(repo), worktree, tmp_path / "state", options)
    files = tree if mode == "overlay" else store.copy
    oldest = min(int((path / "index").stat().st_mtime) for path in (store.git, store.harvest))
    found = [path for path in files.rglob("*") if path.is_file() and path.name != ".git"]
    assert found
    assert all(int(path.lstat().st_mtime) < oldest for path in found)
    # Git sees from times and sizes that no file has changed, without reading any.
    assert Git(store.harvest, work_tree=files).run("diff-files") == b""
