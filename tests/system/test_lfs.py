"""Tests of git-lfs files in real containers: content in worktrees, pointers in commits."""

import hashlib
from pathlib import Path

import pytest

from tests.support.cli import orchestrator, printed, run_one
from tests.support.lfs import pointer, stored, with_content
from tests.support.repository import fingerprint, git
from tests.support.runs import show

pytestmark = [pytest.mark.docker, pytest.mark.variants("*overlay*")]
# Overlay options cannot contain a comma, so the mode `bind` is used there.
PLACES = {"overlay": "plain", "bind": "with,comma"}
CONTENT = b"content\n" * 50_000


@pytest.fixture(params=PLACES)
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    place = tmp_path / PLACES[request.param]
    place.mkdir()
    return with_content(place / "repo", a=CONTENT, other=b"other")


def test_worktree_has_the_content_and_is_clean(repo: Path) -> None:
    before = fingerprint(repo)
    result = run_one(repo, "sha256sum < a.bin; git status --porcelain; git add -A; echo w > w")
    assert printed(result).split() == [hashlib.sha256(CONTENT).hexdigest(), "-"]
    assert result["files_modified"] == ["w"]
    seen = Path(result["worktree_path"])
    assert (seen / "a.bin").read_bytes() == CONTENT
    assert git(seen, "status", "--porcelain") == ""
    assert fingerprint(repo) == before


@pytest.mark.variants("bind")
@pytest.mark.extra
def test_touched_file_stays_a_pointer(repo: Path) -> None:
    task = "cp a.bin x; rm a.bin; mv x a.bin; touch other.bin; git commit -qam mine; echo w > w"
    result = run_one(repo, task)
    assert result["files_modified"] == ["w"]
    assert show(repo, f"{result['branch']}:a.bin") + "\n" == pointer(CONTENT)


def test_changed_and_new_files_become_pointers(repo: Path) -> None:
    result = run_one(repo, "printf changed > a.bin; printf new > n.bin; printf mine > c.bin; "
                       "git add c.bin; git commit -qm mine")  # fmt: skip
    assert result["files_modified"] == ["a.bin", "c.bin", "n.bin"]
    for name, content in (("a", b"changed"), ("n", b"new"), ("c", b"mine")):
        assert show(repo, f"{result['branch']}:{name}.bin") + "\n" == pointer(content)
        assert stored(repo, content).read_bytes() == content
    assert (repo / "a.bin").read_text() == pointer(CONTENT)


@pytest.mark.variants("bind")
@pytest.mark.extra
def test_lfs_file_may_exceed_the_size_limit_of_git(repo: Path) -> None:
    task = "truncate -s 120m large.bin; truncate -s 120m large.dat"
    result = run_one(repo, task)
    assert result["files_modified"] == ["large.bin"]
    assert "a file over 100 MiB was left out: large.dat" in result["message"]
    assert "large.bin" not in result["message"]
    assert stored(repo, b"\0" * (120 << 20)).stat().st_size == 120 << 20


@pytest.mark.extra
def test_unchanged_content_is_not_backed_up(repo: Path) -> None:
    run_one(repo, "true")
    done = orchestrator("parallel-cleanup", cwd=repo)
    assert done.returncode == 0, done.stderr
    assert git(repo, "for-each-ref", "refs/orchestrator") == ""


@pytest.mark.extra
def test_missing_content_causes_a_notice(repo: Path) -> None:
    stored(repo, CONTENT).unlink()
    command = ("parallel", "--agent-cli", "shell", "--workers", "1", "--network", "none")
    done = orchestrator(*command, "true", cwd=repo)
    assert "workers get pointers for files of git-lfs that are not on this machine: a.bin; " \
"fetch them with `git lfs pull`" in done.stderr  # fmt: skip
    assert printed(run_one(repo, "cat a.bin")) == pointer(CONTENT)
