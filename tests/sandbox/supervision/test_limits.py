"""Tests that a worker over a limit is stopped, with the measurement as the reason."""

import itertools
import os
import time
from pathlib import Path

import pytest

from orchestrator.base.files.disk_usage import DiskUse, disk_use
from orchestrator.base.results import Reason
from orchestrator.config.settings.container import Limits
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.protocol import Usage
from orchestrator.sandbox.supervision.limits import LimitMeter, limits_hit
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.runs import GRACE, shell_run

MIB = 1 << 20


@pytest.mark.parametrize(
    ("task", "limit", "reason"),
    [
        ("head -c 4000000 /dev/zero > large; sleep 60", {"disk": MIB}, Reason.DISK),
        ('head -c 4000000 /dev/zero > "$GIT_DIR/large"; sleep 60', {"disk": MIB}, Reason.DISK),
        ("for i in $(seq 300); do echo > $i; done; sleep 60", {"inodes": 100}, Reason.INODES),
        ("head -c 3000000 /dev/zero; sleep 60", {"log_limit": MIB}, Reason.LOG_LIMIT),
        ("sleep 60", {"idle_timeout": 1}, Reason.IDLE),
    ],
)
def test_worker_is_stopped_at_its_limit(
    repo: Path, local_engine: LocalEngine, task: str, limit: dict[str, int], reason: Reason
) -> None:
    limits = Limits(grace=GRACE, **limit)
    (result,) = shell_run(repo, local_engine, task, limits=limits).results
    assert result.reason is reason
    assert result.duration < 60


class _Quiet:
    """A container without measurements."""

    def usage(self) -> None:
        return None

    def lost_network(self) -> None:
        return None


class _Forking:
    """A container at its process limit."""

    def usage(self) -> Usage:
        return Usage(memory=1, pids=10, pids_limit=10)

    def lost_network(self) -> None:
        return None


def test_staying_at_the_process_limit_stops_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.sandbox.supervision.limits.MEASURE", 0.0)
    before = DiskUse(size=0, files=0, hidden=0)
    meter = LimitMeter(_Forking(), Limits(), lambda **_: before, before=before)  # type: ignore[arg-type]
    looks = 0
    while meter.verdict is None:
        meter.look()
        looks += 1
        assert looks < 10
    assert looks > 1
    assert meter.verdict.reason is Reason.PIDS


@pytest.mark.parametrize(
    ("written", "deleted", "stops"),
    [
        ([600], [600], True),
        ([0], [1100], True),
        ([600], [300], False),
        # The file is counted twice for a moment: it was deleted between the measurements.
        ([900, 0], [0, 900], False),
        ([900, 0, 900, 0], [0, 900], False),
    ],
)
def test_deleted_files_that_are_open_count(
    monkeypatch: pytest.MonkeyPatch, written: list[int], deleted: list[int], stops: bool
) -> None:
    monkeypatch.setattr("orchestrator.sandbox.supervision.limits.MEASURE", 0.0)
    monkeypatch.setattr("orchestrator.sandbox.supervision.limits._MEASURE_DISK", 0.0)
    monkeypatch.setattr("orchestrator.sandbox.supervision.limits._SHARE", 1e9)
    before = DiskUse(size=5, files=0, hidden=0)
    sizes = itertools.cycle(written)
    container = _Quiet()
    hidden = itertools.cycle(deleted)
    container.usage = lambda: Usage(memory=1, pids=1, pids_limit=10, deleted=next(hidden) * MIB)  # type: ignore[method-assign,return-value,assignment]

    def measured(**_: object) -> DiskUse:
        return DiskUse(size=5 + next(sizes) * MIB, files=0, hidden=0)

    meter = LimitMeter(container, Limits(disk=1000 * MIB), measured, before=before)  # type: ignore[arg-type]
    for _ in range(8):
        meter.look()
    assert (meter.verdict is not None) == stops
    assert meter.limits_hit[:1] == (["disk"] if stops else [])


@pytest.mark.parametrize(
    ("measured", "counters", "hit"),
    [
        # A worker is measured until it has ended, also while it is being stopped.
        (["disk", "disk", "inodes", "disk"], Counters(), ("disk", "inodes")),
        (["pids", "pids"], Counters(), ("pids",)),
        (["pids", "pids"], Counters(refused_processes=0), ()),
        (
            ["disk", "pids"],
            Counters(memory_kills=2, refused_processes=3),
            ("memory", "pids", "disk"),
        ),
    ],
)
def test_each_limit_is_named_once(
    measured: list[str], counters: Counters, hit: tuple[str, ...]
) -> None:
    assert limits_hit(measured, counters) == hit


def test_keeping_directories_unreadable_stops_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unreadable directories cannot be measured; a build may lock one for a moment."""
    monkeypatch.setattr("orchestrator.sandbox.supervision.limits.MEASURE", 0.01)
    monkeypatch.setattr("orchestrator.sandbox.supervision.limits._MEASURE_DISK", 0.01)
    seen: list[int] = []

    def measured(**_: object) -> DiskUse:
        # Unreadable in two measurements, readable in one, and unreadable from then on.
        seen.append(0 if len(seen) == 2 else 1)
        return DiskUse(size=0, files=0, hidden=seen[-1])

    before = DiskUse(size=0, files=0, hidden=0)
    meter = LimitMeter(_Quiet(), Limits(), measured, before=before)  # type: ignore[arg-type]
    deadline = time.monotonic() + 180
    while meter.verdict is None and time.monotonic() < deadline:
        meter.look()
    assert meter.verdict is not None
    assert meter.verdict.reason is Reason.DISK
    assert len(seen) > 5


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "large").write_bytes(bytes(MIB))
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "file").symlink_to(tmp_path / "outside" / "large")
    (tmp_path / "worker" / "directory").symlink_to(tmp_path / "outside")
    found = disk_use([tmp_path / "worker"], most_files=100)
    assert (found.files, found.hidden) == (2, 0)
    assert found.size < MIB


def test_hard_links_count_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(MIB))
    for number in range(5):
        os.link(tmp_path / "file", tmp_path / f"{number}")
    found = disk_use([tmp_path], most_files=100)
    assert found.files == 6
    assert MIB <= found.size < 2 * MIB


def test_counting_stops_beyond_the_limit(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "file").touch()
    assert 50 < disk_use([tmp_path], most_files=50).files < 60


def test_worker_that_lost_its_network_is_stopped(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalContainer, "lost_network", lambda _: "its gateway ended")
    limits = Limits(grace=GRACE)
    (result,) = shell_run(repo, local_engine, "sleep 600", limits=limits).results
    assert result.reason is Reason.NETWORK_LOST
    assert result.message == "stopped: the worker lost its network: its gateway ended"
