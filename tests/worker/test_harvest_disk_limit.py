"""Tests that a harvest's output counts against the worker's disk limit."""

from pathlib import Path

import pytest

from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.settings.container import Limits
from orchestrator.worker.steps import harvest_request
from orchestrator.worker.steps import pack as packing
from tests.support.lfs import pointer, stored, with_content
from tests.support.local_engine import LocalEngine
from tests.support.runs import GRACE, shell_run, show

MIB = 1024**2


@pytest.fixture
def lfs(tmp_path: Path) -> Path:
    return with_content(tmp_path / "large", a=b"content\n")


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the room of a harvest to twice the disk limit."""
    monkeypatch.setattr(harvest_request, "_MOMENT", 0)


def run(repo: Path, engine: LocalEngine, task: str) -> WorkerResult:
    limits = Limits(grace=GRACE, disk=2 * MIB)
    (worker,) = shell_run(repo, engine, task, limits=limits).results
    assert worker.status is Status.SUCCESS, worker.message
    return worker


def taken(repo: Path) -> int:
    """Return the disk usage of the repository's git directory."""
    files = (path.lstat() for path in (repo / ".git").rglob("*"))
    return sum(info.st_blocks * 512 for info in files)


def test_lfs_content_over_the_limit_is_left_out(lfs: Path, local_engine: LocalEngine) -> None:
    before = taken(lfs)
    task = "truncate -s 60M big.bin; truncate -s 50M a.bin; printf new > n.bin; echo w > w"
    worker = run(lfs, local_engine, task)
    assert worker.files_modified == ["n.bin", "w"]
    assert "a file of git-lfs over the disk limit was left out: big.bin" in (worker.message or "")
    assert "a file of git-lfs over the disk limit was left out: a.bin" in (worker.message or "")
    assert show(lfs, f"{worker.branch}:a.bin") + "\n" == pointer(b"content\n")
    assert stored(lfs, b"new").read_bytes() == b"new"
    assert taken(lfs) - before < 4 * MIB


def test_lfs_content_is_limited_in_total(lfs: Path, local_engine: LocalEngine) -> None:
    worker = run(
        lfs, local_engine, "for n in 1 2 3; do truncate -s 1500k $n.bin; echo $n >> $n.bin; done"
    )
    assert len(worker.files_modified) == 2
    assert (worker.message or "").count("a file of git-lfs over the disk limit was left out: ") == 1


def test_sparse_files_over_the_limit_are_left_out(repo: Path, local_engine: LocalEngine) -> None:
    worker = run(repo, local_engine, "for n in 1 2 3 4; do truncate -s 3M $n.raw; done; echo w > w")
    assert "w" in worker.files_modified
    assert len(worker.files_modified) == 2
    assert (worker.message or "").count("a sparse file over the disk limit was left out: ") == 3


def test_harvest_that_writes_too_much_is_killed(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import sys, time; out = open(sys.argv[5] + '/pack', 'wb')\n"
        "for _ in range(1000): out.write(bytes(1 << 20)); time.sleep(0.01)"
    )
    monkeypatch.setattr(packing, "bundle", lambda _program: script)
    monkeypatch.setattr(packing, "MEASURE", 0.05)
    limits = Limits(grace=GRACE, disk=2 * MIB)
    (worker,) = shell_run(repo, local_engine, "echo w > w", limits=limits).results
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.HARVEST_REFUSED)
    assert "packing the work took" in (worker.message or "")
    assert "the disk limit allows 12 MiB" in (worker.message or "")
