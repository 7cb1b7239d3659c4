"""Tests of the removal of written files that a commit has too."""

import os
from pathlib import Path

import pytest

from orchestrator.repository.commits.changes import blobs
from orchestrator.repository.repository import Repository
from orchestrator.worker.workspace.written_files import remove_committed
from tests.support.repository import git

pytestmark = pytest.mark.process


def left(place: Path) -> set[str]:
    """Return the paths of everything below a directory."""
    return {str(path.relative_to(place)) for path in place.rglob("*")}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory with the files `a.txt` and `src/app.py` of the repository, and two others."""
    place = tmp_path / "written"
    (place / "src").mkdir(parents=True)
    (place / "a.txt").write_text("a\n")
    (place / "src" / "app.py").write_text("print('hello')\n")
    (place / "src" / "other.py").write_text("print('hello')\n")
    (place / "new").mkdir()
    return place


@pytest.fixture
def committed(repo: Path) -> dict[str, str]:
    """Object ids of the files of HEAD."""
    return dict(blobs(Repository(repo), base=None, tip="HEAD"))


def test_committed_files_are_removed_with_their_empty_directories(
    written: Path, committed: dict[str, str]
) -> None:
    (written / "src" / "other.py").unlink()
    remove_committed(written, committed)
    # A directory that is in no commit may be all that the task made.
    assert left(written) == {"new"}


def test_file_with_another_path_or_content_stays(written: Path, committed: dict[str, str]) -> None:
    (written / "a.txt").write_text("b\n")
    remove_committed(written, committed)
    assert left(written) == {"a.txt", "src", "src/other.py", "new"}


def test_files_outside_are_never_reached(
    tmp_path: Path, written: Path, committed: dict[str, str]
) -> None:
    outside = tmp_path / "outside"
    (written / "src").rename(outside)
    (written / "src").symlink_to(outside)
    (written / "a.txt").rename(outside / "a.txt")
    (written / "a.txt").symlink_to(outside / "a.txt")
    remove_committed(written, committed)
    assert left(outside) == {"app.py", "other.py", "a.txt"}
    assert left(written) == {"src", "a.txt", "new"}


def test_special_files_and_missing_directories_are_no_errors(
    written: Path, committed: dict[str, str]
) -> None:
    (written / "a.txt").unlink()
    os.mkfifo(written / "a.txt")
    remove_committed(written, committed)
    remove_committed(written / "missing", committed)
    remove_committed(written / "a.txt", committed)
    assert left(written) == {"a.txt", "src", "src/other.py", "new"}


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_only_changed_regular_files_are_listed(tmp_path: Path, form: str) -> None:
    repo = tmp_path / "repo"
    git(tmp_path, "init", "-q", f"--object-format={form}", str(repo))
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    for name in ("same", "gone", "changed"):
        (repo / name).write_text(name)
    git(repo, "add", "-A")
    git(repo, *who, "commit", "-qm", "base")
    (repo / "gone").unlink()
    (repo / "changed").write_text("anew")
    (repo / "new\nline").write_text("x")
    (repo / "link").symlink_to("same")
    git(repo, "add", "-A")
    git(repo, *who, "commit", "-qm", "tip")
    found = dict(blobs(Repository(repo), base="HEAD~1", tip="HEAD"))
    assert set(found) == {"changed", "new\nline"}
    remove_committed(repo, found)
    assert {path.name for path in repo.iterdir()} == {".git", "same", "link"}
