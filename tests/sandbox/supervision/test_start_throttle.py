"""Tests of the pause between starts of workers."""

import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.base.errors import StartCancelledError
from orchestrator.base.events import Event, WorkerPreparing, WorkerStarted
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.engine.interface.labels import ROLE
from orchestrator.runs.runner import ParallelRunner
from orchestrator.sandbox.supervision.pacing import start_throttle
from orchestrator.sandbox.supervision.pacing.start_throttle import StartThrottle
from tests.support.live import PATIENCE
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.runs import configured, shell_run

GAP = 0.6


def gaps(results: list[WorkerResult]) -> list[float]:
    started = sorted(one.started_at.timestamp() for one in results if one.started_at)
    return [later - earlier for earlier, later in pairwise(started)]


def test_starts_are_staggered(repo: Path, local_engine: LocalEngine) -> None:
    result = shell_run(repo, local_engine, "true", "true", "sleep 2", "true", stagger=GAP)
    assert result.status is Status.SUCCESS
    assert len(gaps(result.results)) == 3
    # The engine reports rounded times.
    assert min(gaps(result.results)) > GAP - 0.01


def test_without_stagger_workers_start_together(repo: Path, local_engine: LocalEngine) -> None:
    both = (
        "echo $ORCHESTRATOR_WORKER_ID >> {0}; while [ $(wc -l < {0}) -lt 2 ]; do sleep 0.02; done"
    )
    task = both.format(repo.parent / "met")
    result = shell_run(repo, local_engine, task, task, timeout_per_worker=150)
    assert result.status is Status.SUCCESS


def test_retries_are_staggered(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []
    started: list[float] = []

    def start(container: LocalContainer) -> None:
        if container.spec.labels[ROLE] == "worker":
            begun.append(time.monotonic())
            original(container)
            started.append(time.monotonic())
        else:
            original(container)

    original = LocalContainer.start
    monkeypatch.setattr(LocalContainer, "start", start)
    flag = repo.parent / "flag"
    task = f"[ -e {flag} ] || {{ touch {flag}; exit 1; }}"
    config = configured(task, stagger=2.0, retries=1, retry_delay=0)
    (worker,) = ParallelRunner(config, repo, engine=local_engine).run()
    assert worker.attempts == len(begun) == 2
    assert begun[1] - started[0] >= 2.0


def test_cancel_ends_the_wait_before_the_start(repo: Path, local_engine: LocalEngine) -> None:
    marks = repo.parent / "marks"
    seen: set[int] = set()

    def press(event: Event) -> None:
        if isinstance(event, (WorkerStarted, WorkerPreparing)):
            seen.add(event.worker_id if isinstance(event, WorkerPreparing) else 0)
            if seen >= {0, 1, 2}:
                runner.cancel()

    task = f"echo x >> {marks}; exec sleep 60"
    config = configured(task, task, stagger=1000)
    runner = ParallelRunner(config, repo, engine=local_engine, emit=press)
    began = time.monotonic()
    results = runner.run()
    assert time.monotonic() - began < 30
    assert [one.reason for one in results] == [Reason.CANCELLED] * 2
    assert sorted(str(one.message) for one in results) == [
        "cancelled",
        "cancelled before this worker started",
    ]
    assert len(marks.read_text().splitlines()) <= 1


class TestPace:
    def test_cancelled_start_does_not_delay_the_next(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
        monkeypatch.setattr(start_throttle, "time", clock)
        pace = StartThrottle(10)
        with pace.turn(lambda: False):
            pass
        now[0] = 9.0
        with pytest.raises(StartCancelledError), pace.turn(lambda: True):
            pass
        with pace.turn(lambda: False):
            assert now[0] == pytest.approx(10)

    def test_pause_counts_from_the_end_of_a_start(self) -> None:
        pace = StartThrottle(0.2)
        begun = threading.Event()
        turns: list[float] = []

        def slow() -> None:
            with pace.turn(lambda: False):
                begun.set()
                time.sleep(0.3)
                turns.append(time.monotonic())

        thread = threading.Thread(target=slow)
        thread.start()
        assert begun.wait(PATIENCE)
        with pace.turn(lambda: False):
            turns.append(time.monotonic())
        thread.join(PATIENCE)
        assert turns[1] - turns[0] >= 0.2

    def test_resumed_run_waits_before_its_first_start(self) -> None:
        began = time.monotonic()
        with StartThrottle(0.2, just_started=True).turn(lambda: False):
            assert time.monotonic() - began >= 0.2
