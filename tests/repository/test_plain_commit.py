"""Tests of commits of ordinary files without a work tree, compared with those of git."""

from pathlib import Path

import pytest

from orchestrator.repository.commits.plain_commit import (
    PlainCommit,
    PlainFile,
    PlainFiles,
    commit_plainly,
    takes_as_they_are,
)
from orchestrator.repository.git.command import Git
from orchestrator.repository.repository import Repository
from tests.support.repository import git


def committed(repo: Path, scratch: Path, *files: PlainFile, folders: tuple[str, ...] = ()):
    """Commit files on HEAD; return the commit, or None, and import its pack."""
    repository = Repository(repo)
    start = git(repo, "rev-parse", "HEAD").strip()
    commit = PlainCommit(
        base=start,
        start=start,
        objects=repository.objects_dir,
        message="what was done\n\nbody\n",
        plain=PlainFiles(files, folders),
    )
    pack = scratch / "made.pack"
    tip = commit_plainly(repository, commit, scratch / "plain", pack)
    assert not (scratch / "plain").exists()
    if tip not in (None, start):
        Git(repo / ".git").run("index-pack", "--strict", "--stdin", stdin=pack.read_bytes())
        git(repo, "fsck", "--strict", "--no-dangling")
    return tip


def test_commit_equals_that_of_git(repo: Path, tmp_path: Path) -> None:
    git(repo, "config", "user.name", "Ann <the> author")
    files = (
        PlainFile("a.txt", False, b"changed\n"),
        PlainFile("new/run.sh", True, b"#!/bin/sh\n"),
        PlainFile("new/zero", False, b"\0\ndata 3\n"),
    )
    tip = committed(repo, tmp_path, *files, folders=("new",))
    assert git(repo, "rev-parse", f"{tip}^").strip() == git(repo, "rev-parse", "HEAD").strip()
    for file in files:
        path = repo / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.executable else 0o644)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "what was done\n\nbody")
    form = ("show", "-s", "--format=%T%n%an%n%ae%n%cn%n%ce%n%B")
    assert git(repo, *form, str(tip)) == git(repo, *form, "HEAD")


def test_unchanged_content_makes_no_commit(repo: Path, tmp_path: Path) -> None:
    head = git(repo, "rev-parse", "HEAD").strip()
    content = (repo / "a.txt").read_bytes()
    assert committed(repo, tmp_path, PlainFile("a.txt", False, content)) == head


def test_directory_in_place_of_a_file_is_refused(repo: Path, tmp_path: Path) -> None:
    assert committed(repo, tmp_path, PlainFile("a.txt/b", False, b"b"), folders=("a.txt",)) is None


def test_directory_in_place_of_a_submodule_is_refused(repo: Path, tmp_path: Path) -> None:
    commit = git(repo, "rev-parse", "HEAD").strip()
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    git(repo, "commit", "-qm", "submodule")
    assert committed(repo, tmp_path, PlainFile("sub/b", False, b"b"), folders=("sub",)) is None


def takes(repo: Path, *paths: str) -> bool:
    rules = Git(repo / ".git", work_tree=repo)
    return takes_as_they_are(Repository(repo), rules, paths)


def test_ignored_files_are_not_accepted(repo: Path) -> None:
    assert takes(repo, "a.txt", "new/b.log")
    (repo / ".gitignore").write_text("*.log\n")
    assert takes(repo, "a.txt")
    assert not takes(repo, "a.txt", "new/b.log")


def test_files_with_attributes_are_not_accepted(repo: Path) -> None:
    (repo / ".gitattributes").write_text("*.bin filter=lfs\n")
    assert takes(repo, "a.txt")
    assert not takes(repo, "a.txt", "b.bin")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.autocrlf", "input"),
        ("core.fileMode", "false"),
        ("core.ignoreCase", "true"),
        ("core.sparseCheckout", "true"),
    ],
)
def test_no_file_is_accepted_if_a_setting_converts_files(repo: Path, key: str, value: str) -> None:
    assert takes(repo, "a.txt")
    git(repo, "config", key, value)
    assert not takes(repo, "a.txt")
