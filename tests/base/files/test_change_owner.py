"""Tests of changing the owner of directory trees, with `chown` and with Python."""

import os
import resource
from pathlib import Path

import pytest

from orchestrator.base.files import change_owner as change_owner_module
from orchestrator.base.files.change_owner import change_owner

pytestmark = pytest.mark.process
THEIRS = (20_001, 20_001) if os.getuid() == 0 else (os.getuid(), os.getgid())


@pytest.fixture(params=["chown", "python", "few"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use `chown`, Python without `chown`, or Python because there are few files."""
    if request.param != "few":
        monkeypatch.setattr(change_owner_module, "_FEW", 0)
    if request.param == "python":
        monkeypatch.setenv("PATH", "")
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_change_of_owner_does_not_leave_the_tree(tmp_path: Path) -> None:
    """A link in the base may lead to a file of the host's."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    tree = tmp_path / "tree"
    (tree / "folder").mkdir(parents=True)
    # Following the links is an error for an ordinary user, and changes `outside` for root.
    (tree / "theirs").symlink_to("/etc/passwd" if os.getuid() else outside / "file")
    (tree / "folder" / "directory").symlink_to(outside)
    (tree / "folder" / "-file").touch()
    change_owner(tree, THEIRS)
    assert {path.lstat().st_uid for path in (tree, *tree.rglob("*"))} == {THEIRS[0]}
    assert {path.lstat().st_uid for path in (outside, outside / "file")} == {os.getuid()}


@pytest.mark.usefixtures("way")
def test_top_of_a_worktree_keeps_its_owner(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in (".git", "-file", "folder/.git"):
        (tmp_path / name).touch()
    change_owner(tmp_path, THEIRS, keep=tmp_path)
    kept = (tmp_path, tmp_path / ".git")
    assert {path.lstat().st_uid for path in kept} == {os.getuid()}
    changed = {path for path in tmp_path.rglob("*") if path not in kept}
    assert {path.lstat().st_uid for path in changed} == {THEIRS[0]}


def test_missing_file_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(change_owner_module, "_FEW", 0)
    monkeypatch.setattr(change_owner_module, "_run_chown", lambda *_: (tmp_path / "file").unlink())
    change_owner(tmp_path, THEIRS, keep=tmp_path)
    assert not list(tmp_path.iterdir())


def test_deep_tree_needs_few_descriptors(tmp_path: Path) -> None:
    deep = tmp_path.joinpath("tree", *["d"] * 200)
    deep.mkdir(parents=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    try:
        change_owner(tmp_path / "tree", THEIRS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert deep.stat().st_uid == THEIRS[0]
