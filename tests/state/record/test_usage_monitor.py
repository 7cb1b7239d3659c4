"""Tests of measuring running workers from another process."""

import time
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.base.events import WorkerMeasured
from orchestrator.state.record.usage_monitor import UsageMonitor, count_changes
from orchestrator.state.worker.worker_directory import Store
from tests.support.live import LiveRun, eventually, newest
from tests.support.local_engine import LocalEngine

BUSY = "echo x > new; echo y >> a.txt; rm src/app.py; head -c 400000 /dev/zero > big; echo up; "


@pytest.fixture
def live(repo: Path, tmp_path: Path) -> LiveRun:
    return LiveRun(repo, tmp_path / "gate")


def has_printed(repo: Path) -> bool:
    return (newest(repo).directory.worker(1) / "stdout.log").read_bytes() != b""


def no_engine() -> LocalEngine:
    raise EngineUnavailableError("none", key="engine.unreachable")


def test_usage_of_a_running_worker(live: LiveRun, repo: Path, local_engine: LocalEngine) -> None:
    told: list[WorkerMeasured] = []
    task = BUSY + live.wait_for_gate.replace("sleep 0.02", ":")
    with live.going_on(local_engine, task, "true", workers=1), newest(repo) as history:
        eventually(lambda: has_printed(repo))
        while history.read():
            pass
        gauge = UsageMonitor(history, told.append, connect=lambda: local_engine)
        gauge.look()

        def works() -> bool:
            # Long enough: CPU time is counted in hundredths of a second.
            time.sleep(0.3)
            gauge.look()
            return (told[-1].cpus or 0) > 0.05

        eventually(works, "CPU time")
        assert {event.worker_id for event in told} == {1}
        assert told[0].cpus is None
        last = told[-1]
        assert (last.cpus or 0) < 4
        assert (last.memory or 0) > 10_000
        assert 400_000 < (last.disk or 0) < 2_000_000
        assert last.files == 4


def test_files_are_counted_without_an_engine(
    live: LiveRun, repo: Path, local_engine: LocalEngine
) -> None:
    told: list[WorkerMeasured] = []
    with live.going_on(local_engine, BUSY + live.wait_for_gate), newest(repo) as history:
        eventually(lambda: has_printed(repo))
        while history.read():
            pass
        with UsageMonitor(history, told.append, connect=no_engine):
            eventually(lambda: len(told) > 1)
    assert (told[0].files, told[0].memory, told[0].cpus) == (4, None, None)


def test_changed_files_in_an_overlay_are_counted(tmp_path: Path) -> None:
    store = Store(root=tmp_path)
    (store.upper / "folder").mkdir(parents=True)
    assert count_changes(store, tmp_path) == 0
    (store.upper / "folder" / "file").touch()
    (store.upper / "link").symlink_to("/")
    assert count_changes(store, tmp_path) == 2


def test_too_many_files_give_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(root=tmp_path / "store")
    for folder in (store.copy, store.harvest, tmp_path / "worktree"):
        folder.mkdir(parents=True)
    assert count_changes(store, tmp_path / "worktree") is None, "no times to compare with"
    (store.harvest / "index").touch()
    assert count_changes(store, tmp_path / "worktree") == 0
    monkeypatch.setattr("orchestrator.state.record.usage_monitor.MOST_FILES", 3)
    for name in "abc":
        (store.copy / name).touch()
    assert count_changes(store, tmp_path / "worktree") is None
