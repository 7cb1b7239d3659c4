"""Tests of the limits on git commands: time, memory, output, inherited descriptors."""

import fcntl
import os
import select
import sys
import threading
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.base.errors import GitCommandError, OutputTooLongError
from orchestrator.repository.git import command as gate
from orchestrator.repository.git import object_reader
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.limits import Limits
from orchestrator.repository.git.object_reader import consult, open_objects
from orchestrator.repository.repository import Repository
from tests.support.errors import raises
from tests.support.repository import git


@pytest.fixture
def ours(repo: Path) -> Git:
    return Git(repo / ".git", work_tree=repo)


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """Return a file that never ends."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return str(path)


@pytest.mark.timeout(90)
def test_command_is_killed_at_its_timeout(ours: Git, endless: str) -> None:
    with raises("git.timeout", "0.3 s"):
        ours.run("hash-object", endless, timeout=0.3)


@pytest.mark.timeout(90)
def test_listing_is_killed_at_its_timeout(
    ours: Git, endless: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "TIMEOUT", 0.3)
    with pytest.raises(GitCommandError, match="was killed, for example at its time limit"):
        ours.listing("hash-object", endless, limit=100)


def test_listing_is_read_only_up_to_its_limit(ours: Git, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"line\n" * 2_000_000)
    blob = ours.text("hash-object", "-w", str(tmp_path / "large"))
    assert len(ours.listing("cat-file", "blob", blob, limit=10_000_000)) == 10_000_000
    tracemalloc.start()
    with pytest.raises(OutputTooLongError):
        ours.listing("cat-file", "blob", blob, limit=9_999)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


AMPLE = Limits(memory=512 * 1024**2, cpu=60, time=60.0)


def test_limits_hold_from_the_start_of_a_command(ours: Git) -> None:
    limited = ours.within(replace(AMPLE, cpu=7))
    words = ("-c", "alias.limits=!ulimit -d; ulimit -t", "limits")
    assert limited.run(*words).split() == limited.listing(*words, limit=100).split()
    assert limited.run(*words).split() == [b"524288", b"7"]
    assert ours.run(*words).split() != [b"524288", b"7"]


def test_memory_of_a_limited_command_is_bounded(ours: Git, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x\n" + bytes(64 * 1024**2))
    search = ("grep", "-a", "-c", "x", ours.text("hash-object", "-w", str(tmp_path / "large")))
    assert ours.within(AMPLE).run(*search).endswith(b":1\n")
    for read in (Git.run, partial(Git.listing, limit=100)):
        with pytest.raises(GitCommandError, match=r"(?i)out of memory"):
            read(ours.within(replace(AMPLE, memory=32 * 1024**2)), *search)


@pytest.mark.timeout(150)
def test_cpu_time_of_a_limited_command_is_bounded(ours: Git) -> None:
    limited = ours.within(replace(AMPLE, cpu=1))
    with pytest.raises(GitCommandError, match=r"was killed|exit code 137|signal 9"):
        limited.run("-c", "alias.spin=!while :; do :; done", "spin")


@pytest.mark.timeout(90)
def test_limited_command_is_killed_at_its_timeout(ours: Git, endless: str) -> None:
    limited = ours.within(replace(AMPLE, time=0.3))
    with raises("git.timeout", "0.3 s"):
        limited.run("hash-object", endless)
    with pytest.raises(GitCommandError, match="was killed, for example at its time limit"):
        limited.listing("hash-object", endless, limit=100)
    reader = (sys.executable, "-c", "import time; time.sleep(60)")
    with pytest.raises(GitCommandError, match="was killed, for example at its time limit"):
        consult(limited, reader, b"")


@pytest.mark.timeout(90)
def test_git_that_answers_no_question_is_killed_at_its_timeout(
    ours: Git, endless: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_reader, "_BATCH", ("hash-object", endless))
    with open_objects(ours.within(replace(AMPLE, time=0.3))) as (_, questions):
        wait_until_unread(questions)
        with pytest.raises(BrokenPipeError):
            os.write(questions, b"HEAD\n")


def wait_until_unread(pipe: int) -> None:
    """Wait until no process can read from a pipe."""
    waiting = select.poll()
    waiting.register(pipe, select.POLLERR)
    assert waiting.poll(60_000), "the process still runs"


def test_output_of_a_limited_command_is_bounded(
    ours: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "MOST_OUTPUT", 1000)
    (tmp_path / "large").write_bytes(bytes(1001))
    blob = ours.text("hash-object", "-w", str(tmp_path / "large"))
    assert len(ours.run("cat-file", "blob", blob)) == 1001
    with pytest.raises(OutputTooLongError):
        ours.within(AMPLE).run("cat-file", "blob", blob)
    with pytest.raises(OutputTooLongError):
        consult(ours.within(AMPLE), (sys.executable, "-c", "print('x' * 100)"), b"", most=100)


def test_long_error_output_keeps_beginning_and_end(ours: Git) -> None:
    script = "!echo first >&2; head -c 1000000 /dev/zero | tr '\\0' x >&2; echo last >&2; exit 3"
    with pytest.raises(GitCommandError) as caught:
        ours.run("-c", f"alias.fail={script}", "fail")
    assert caught.value.stderr.startswith("first")
    assert caught.value.stderr.endswith("last\n")
    assert len(caught.value.stderr) < 20_000


@pytest.mark.timeout(90)
def test_partly_read_command_is_killed(ours: Git, endless: str) -> None:
    """The command has printed more than was read, and waits for more input, which never ends."""
    with open(endless, "r+b", buffering=0) as fifo:  # noqa: PTH123
        fifo.write(b"HEAD\n")
        with ours.reading("cat-file", "--batch", stdin=fifo) as lines:
            assert b" commit " in lines.readline()


def test_object_reader_has_limits_and_no_environment(
    ours: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "x")
    code = (
        "import os, resource, sys; a, q = map(int, sys.argv[1:])\n"
        "os.write(q, sys.stdin.buffer.readline()); answer = os.fdopen(a, 'rb').readline()\n"
        "print('A_SECRET' in os.environ, resource.getrlimit(resource.RLIMIT_DATA)[0], answer)"
    )
    answer = consult(ours.within(AMPLE), (sys.executable, "-I", "-c", code), b"HEAD^{tree}\n")
    assert answer.startswith(b"False 536870912 b'")
    assert b" tree " in answer


def test_object_reader_inherits_no_lease(ours: Git, tmp_path: Path) -> None:
    code = (
        "import os, pathlib\n"
        "for place in pathlib.Path('/proc').glob('[0-9]*'):\n"
        "    try:\n"
        "        parent = int((place / 'stat').read_text().rpartition(')')[2].split()[1])\n"
        "        links = [os.readlink(one) for one in (place / 'fd').iterdir()]\n"
        "        words = (place / 'cmdline').read_bytes()\n"
        "    except OSError:\n"
        "        continue\n"
        "    if parent == os.getppid() and b'cat-file' in words:\n"
        "        print(any(link.endswith('/lease') for link in links))\n"
    )
    lease = os.open(tmp_path / "lease", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(lease, True)
    try:
        answer = consult(ours.within(AMPLE), (sys.executable, "-I", "-c", code), b"")
    finally:
        os.close(lease)
    assert answer == b"False\n"


def test_git_runs_in_its_own_session(ours: Git) -> None:
    words = ("-c", "alias.session=!cut -d' ' -f6 /proc/self/stat", "session")
    for said in (ours.run(*words), ours.listing(*words, limit=100)):
        assert int(said) != os.getsid(0)


@pytest.mark.timeout(90)
def test_repository_lock_is_waited_for(repo: Path) -> None:
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


def test_branch_is_deleted_only_at_its_expected_commit(repo: Path) -> None:
    git(repo, "branch", "other")
    with pytest.raises(GitCommandError):
        Repository(repo).drop_branch("other", at=git(repo, "rev-parse", "HEAD~1"))
    Repository(repo).drop_branch("other", at=git(repo, "rev-parse", "other"))
    assert git(repo, "for-each-ref", "refs/heads/other") == ""


def test_branch_moves_only_from_its_expected_commit(repo: Path) -> None:
    git(repo, "branch", "other")
    head, before = git(repo, "rev-parse", "HEAD"), git(repo, "rev-parse", "HEAD~1")
    with pytest.raises(GitCommandError):
        Repository(repo).move_branch("other", new=before, old=before)
    assert git(repo, "rev-parse", "other") == head
    Repository(repo).move_branch("other", new=before, old=head)
    assert git(repo, "rev-parse", "other") == before


def test_existing_branch_is_not_claimed(repo: Path) -> None:
    git(repo, "branch", "taken", "HEAD~1")
    before = git(repo, "for-each-ref")
    with pytest.raises(GitCommandError):
        Repository(repo).claim(["free", "taken"], git(repo, "rev-parse", "HEAD"))
    assert git(repo, "for-each-ref") == before


@pytest.mark.parametrize("key", ["clean", "smudge", "process"])
@pytest.mark.parametrize("required", ["true", "false"])
def test_switched_off_filters_do_not_run(
    repo: Path, tmp_path: Path, key: str, required: str
) -> None:
    mark = tmp_path / "MARK"
    git(repo, "config", f"filter.a.b.{key}", f"touch '{mark}'; cat")
    git(repo, "config", "filter.a.b.required", required)
    (repo / ".gitattributes").write_text("* filter=a.b\n")
    repository = Repository(repo)
    off = repository.git
    (repo / "a.txt").write_text("changed\n")
    off.run("add", "-A")
    (repo / "a.txt").unlink()
    off.run("checkout-index", "a.txt")
    assert (repo / "a.txt").read_text() == "changed\n"
    assert not mark.exists()


def test_directory_that_is_gone_is_named(repo: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with raises("directory.missing", gone):
        Git(repo / ".git", work_tree=gone).run("status")
