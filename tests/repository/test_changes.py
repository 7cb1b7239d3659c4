"""Tests of the bounded list of a worker's changes."""

import os
from pathlib import Path

import pytest

from orchestrator.base.errors import RepositoryError
from orchestrator.repository.commits import changes as listing
from orchestrator.repository.commits.changes import changes, differing_paths, patch
from orchestrator.repository.repository import Repository
from tests.support.repository import git


@pytest.fixture
def base(repo: Path) -> str:
    return git(repo, "rev-parse", "HEAD")


def _commit(repo: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        (repo / name).write_bytes(content)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "work")
    return git(repo, "rev-parse", "HEAD")


def test_paths_and_lines_are_counted(repo: Path, base: str) -> None:
    tip = _commit(repo, {"new": b"1\n2\n", "binary": b"\0", os.fsdecode(b"odd\t\xff"): b"x\n"})
    found = changes(Repository(repo), base=base, tip=tip)
    assert set(found.files) == {"new", "binary", "odd\t\\xff"}
    assert (found.total, found.insertions, found.deletions, found.notes) == (3, 3, 0, ())
    assert found.is_whole


@pytest.mark.parametrize(("name", "value"), [("MOST_FILES", 3), ("MOST_BYTES", 9)])
def test_number_of_listed_paths_is_bounded(
    repo: Path, base: str, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    tip = _commit(repo, {f"f{number:02}": b"x\n" for number in range(10)})
    monkeypatch.setattr(listing, name, value)
    found = changes(Repository(repo), base=base, tip=tip)
    assert found.files == ("f00", "f01", "f02")
    assert (found.total, found.insertions) == (10, 10)
    assert found.notes == ("10 files changed, of which 3 are listed",)
    assert not found.is_whole
    assert len(list(differing_paths(Repository(repo), base=base, tip=tip))) == 10


def test_large_file_of_empty_lines_counts_as_binary(repo: Path, base: str) -> None:
    """To count the lines of 100 MB of empty lines, git takes 4 GiB of memory."""
    small = _commit(repo, {"lines": b"\n" * 4 * 1024**2})
    assert changes(Repository(repo), base=base, tip=small).insertions == 4 * 1024**2
    large = _commit(repo, {"lines": b"\n" * (4 * 1024**2 + 1)})
    found = changes(Repository(repo), base=base, tip=large)
    assert (found.files, found.insertions, found.notes) == (("lines",), 0, ())
    assert b"Binary files" in patch(Repository(repo), base=base, tip=large, limit=10_000)


def test_paths_are_listed_if_lines_cannot_be_counted(repo: Path, base: str) -> None:
    """The user's attributes may declare a file as text, whatever its size."""
    (repo / ".git" / "info" / "attributes").write_text("* diff\n")
    tip = _commit(repo, {"lines": b"\n" * 30 * 1024**2, "other": b"x\n"})
    found = changes(Repository(repo), base=base, tip=tip)
    assert found.files == ("lines", "other")
    assert found.insertions == 0
    assert len(found.notes) == 1
    assert found.notes[0].startswith("the changed lines were not counted (`git diff-tree`")


def test_comparison_with_a_missing_commit_fails(repo: Path, base: str) -> None:
    with pytest.raises(RepositoryError):
        changes(Repository(repo), base=base, tip="0" * 40)
