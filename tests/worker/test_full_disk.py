"""Tests of workers whose disk is full, or fails, at any write of the host after the task's end."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.results import Status, WorkerResult
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from tests.support.attempts import state_of
from tests.support.local_engine import LocalEngine
from tests.support.repository import git, make_repository
from tests.support.runs import configured, show

SIZE = 320 * 1024**2
MOST = 64
"""More files than the host opens for writing after a task's end."""
_NOT_OURS = ("", "/tmp", "/dev/null")
"""Descriptors, files without a name, and no file at all."""
_on_open: list[Callable[[str], None]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Call the hook for each file that this process opens for writing; raise its error.

    An audit hook cannot be removed, so this one does nothing between tests.
    """
    if event == "open" and _on_open and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        path = "" if isinstance(arguments[0], int) else os.fsdecode(arguments[0])
        if path not in _NOT_OURS:
            _on_open[0](path)


@cache
def _install() -> None:
    sys.addaudithook(_audit)


class Disk:
    """A small file system in memory that fails at the nth file opened after the task's end.

    It is full from then on, or reports another error once.
    """

    def __init__(self, place: Path, ended: Path) -> None:
        self.place, self.ended = place, ended
        self.nth, self.fails = 0, 0
        self.opened: list[str] = []

    def __call__(self, path: str) -> None:
        if not self.ended.exists():
            return
        self.opened.append(path)
        if len(self.opened) != self.nth:
            return
        if self.fails:
            raise OSError(self.fails, os.strerror(self.fails), path)
        with suppress(OSError), (self.place / "filler").open("wb", buffering=0) as file:
            state = os.statvfs(self.place)
            os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - 4096)
            file.seek(0, os.SEEK_END)
            while True:
                file.write(b"x" * 4096)

    def empty(self) -> None:
        self.nth = 0
        (self.place / "filler").unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path, home: Path) -> Iterator[Disk]:  # noqa: ARG001
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "disk", place], check=True)
    _install()
    found = Disk(place, tmp_path / "ended")
    _on_open[:] = [found]
    try:
        yield found
    finally:
        _on_open.clear()
        subprocess.run(["umount", "--lazy", place], check=True)


def resumed(repo: Path, engine: LocalEngine) -> WorkerResult:
    (worker,) = ResumedRun(state_of(repo), engine=engine).execute().results
    return worker


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cases = [(how, nth) for how in ("full", "once") for nth in range(1, MOST + 1)]
    metafunc.parametrize(("how", "nth"), cases)


@pytest.mark.variants("full-1", "full-13", "full-15", f"full-{MOST}", "once-1", "once-12")
def test_worker_gets_the_result_that_its_task_earned(
    disk: Disk, local_engine: LocalEngine, how: str, nth: int
) -> None:
    repo = make_repository(disk.place / "repo")
    disk.nth, disk.fails = nth, 0 if how == "full" else (errno.EIO, errno.EDQUOT)[nth % 2]
    config = configured(
        f"echo said; echo new > new.txt; touch {disk.ended}",
        setup=("echo set > set.txt",),
        teardown=("echo torn > torn.txt",),
        checks=("test -s new.txt", "echo checked"),
    )
    ParallelRunner(config, repo, engine=local_engine).execute()
    assert nth < MOST or 40 < len(disk.opened) < MOST
    if how == "full" and nth % 2:
        # Whoever resumes too early loses nothing either.
        with suppress(OrchestratorError):
            resumed(repo, local_engine)
    disk.empty()
    worker = resumed(repo, local_engine)
    files, why = ["new.txt", "set.txt", "torn.txt"], None
    if worker.message and disk.fails and disk.opened[nth - 1].endswith("teardown.log"):
        # The task's own work is there, and the message says what is not.
        files = files[:2]
        why = f"the teardown was not run ([Errno {disk.fails}] {os.strerror(disk.fails)}"
    assert worker.files_modified == files
    assert worker.status is Status.SUCCESS
    assert bool(worker.message) == bool(why)
    assert (worker.message or "").startswith(why or "")
    assert [check.passed for check in worker.checks] == [True, True]
    assert (Path(worker.log or "") / "stdout.log").read_text() == "said\n"
    assert show(repo, "architect/parallel-1:new.txt") == "new"
    assert git(repo / ".architect-parallel-1", "status", "--porcelain") == ""
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""
