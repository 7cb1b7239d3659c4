"""No git command goes on without end, takes all memory, or dies of a key that was not for it."""

import fcntl
import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from orchestrator import git as gate
from orchestrator.errors import RepositoryError
from orchestrator.git import Git, GitCommandError, OutputTooLongError
from orchestrator.repository import Repository
from tests.support.repository import git


@pytest.fixture
def ours(repo: Path) -> Git:
    return Git(repo / ".git", work_tree=repo)


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """A file whose end never comes."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return str(path)


@pytest.mark.timeout(20)
def test_a_command_is_ended(ours: Git, endless: str) -> None:
    with pytest.raises(RepositoryError, match=r"took longer than 0\.3 s"):
        ours.run("hash-object", endless, timeout=0.3)


@pytest.mark.timeout(20)
def test_a_listing_is_ended(ours: Git, endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "TIMEOUT", 0.3)
    with pytest.raises(GitCommandError, match="exit code -9"):
        ours.listing("hash-object", endless, limit=100)


def test_a_listing_is_read_to_its_limit_alone(ours: Git, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"line\n" * 2_000_000)
    blob = ours.text("hash-object", "-w", str(tmp_path / "large"))
    assert len(ours.listing("cat-file", "blob", blob, limit=10_000_000)) == 10_000_000
    tracemalloc.start()
    with pytest.raises(OutputTooLongError):
        ours.listing("cat-file", "blob", blob, limit=9_999)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_key_at_the_terminal_is_not_for_git(ours: Git) -> None:
    words = ("-c", "alias.session=!cut -d' ' -f6 /proc/self/stat", "session")
    for said in (ours.run(*words), ours.listing(*words, limit=100)):
        assert int(said) != os.getsid(0)


@pytest.mark.timeout(20)
def test_another_orchestrator_is_waited_for(repo: Path) -> None:
    repository = Repository(repo)
    with repository.lock():
        pass
    order = []

    def take() -> None:
        with repository.lock():
            order.append("ours")

    with (repository.state_dir / "lock").open("w") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        waiting = threading.Thread(target=take)
        waiting.start()
        waiting.join(0.3)
        order.append("theirs")
    waiting.join()
    assert order == ["theirs", "ours"]


def test_a_branch_is_dropped_only_where_it_was_seen(repo: Path) -> None:
    git(repo, "branch", "other")
    with pytest.raises(GitCommandError):
        Repository(repo).drop_branch("other", at=git(repo, "rev-parse", "HEAD~1"))
    Repository(repo).drop_branch("other", at=git(repo, "rev-parse", "other"))
    assert git(repo, "for-each-ref", "refs/heads/other") == ""


def test_no_branch_is_taken_over(repo: Path) -> None:
    git(repo, "branch", "taken", "HEAD~1")
    before = git(repo, "for-each-ref")
    with pytest.raises(GitCommandError):
        Repository(repo).claim(["free", "taken"], git(repo, "rev-parse", "HEAD"))
    assert git(repo, "for-each-ref") == before


@pytest.mark.parametrize("key", ["clean", "smudge", "process"])
@pytest.mark.parametrize("required", ["true", "false"])
def test_no_filter_is_run_where_they_are_off(
    repo: Path, tmp_path: Path, key: str, required: str
) -> None:
    mark = tmp_path / "MARK"
    git(repo, "config", f"filter.a.b.{key}", f"touch '{mark}'; cat")
    git(repo, "config", "filter.a.b.required", required)
    (repo / ".gitattributes").write_text("* filter=a.b\n")
    repository = Repository(repo)
    off = Git(repository.git_dir, work_tree=repo, config=repository.without_filters())
    (repo / "a.txt").write_text("changed\n")
    off.run("add", "-A")
    (repo / "a.txt").unlink()
    off.run("checkout-index", "a.txt")
    assert (repo / "a.txt").read_text() == "changed\n"
    assert not mark.exists()
