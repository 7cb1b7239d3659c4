"""The clock of a worker waits for nothing else: neither measuring, nor logs, nor callbacks."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config.container import Limits
from orchestrator.engine.protocol import Usage
from orchestrator.events import Event, WorkerOutput, WorkerStopping
from orchestrator.files.disk_usage import DiskUse
from orchestrator.results import Reason, WorkerResult
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.runs import configured

DEADLINE, GRACE = 1.0, 0.2
BLOCKED = 6.0
"""Seconds that something hangs, well beyond the deadline and the grace."""
LIMITS = Limits(grace=GRACE, log_limit=1 << 20)
NOTHING = DiskUse(size=0, files=0, hidden=0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.execution.supervisor._LAST", 0.2)


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    """Something hangs until this is set, at the latest at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def life(
    repo: Path, engine: LocalEngine, first: str = ":", emit: object = None,
    deadline: float = DEADLINE,
) -> tuple[WorkerResult, float]:  # fmt: skip
    """Run a worker that ignores SIGTERM; give its result and how long it was seen alive."""
    sign = repo.parent / "alive"
    lives = f"while :; do echo x; touch {sign}; sleep 0.02; done"
    task = f"trap '' TERM; touch {sign} {sign}.born; {first}; {lives}"
    config = configured(task, timeout_per_worker=deadline, limits=LIMITS)
    runner = ParallelRunner(config, repo, engine=engine, emit=emit)  # type: ignore[arg-type]
    (result,) = runner.execute().results
    return result, sign.stat().st_mtime - Path(f"{sign}.born").stat().st_mtime


def test_measuring_that_hangs_keeps_nobody_alive(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, hung: threading.Event
) -> None:
    def measured(*_: object, **__: object) -> DiskUse:
        hung.wait(BLOCKED)
        return NOTHING

    monkeypatch.setattr("orchestrator.execution.limits.disk_use", measured)
    result, lived = life(repo, local_engine)
    assert result.reason is Reason.TIMEOUT
    assert lived < DEADLINE + GRACE + 1
    assert result.duration < DEADLINE + GRACE + 1


def test_an_engine_that_does_not_say_what_is_used_keeps_nobody_alive(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, hung: threading.Event
) -> None:
    def usage(_: LocalContainer) -> Usage | None:
        hung.wait(BLOCKED)
        return None

    monkeypatch.setattr("orchestrator.execution.limits.MEASURE", 0.0)
    monkeypatch.setattr(LocalContainer, "usage", usage)
    result, lived = life(repo, local_engine)
    assert result.reason is Reason.TIMEOUT
    assert lived < DEADLINE + GRACE + 1


@pytest.mark.parametrize("told", [WorkerOutput, WorkerStopping])
def test_a_callback_that_hangs_keeps_nobody_alive(
    repo: Path, local_engine: LocalEngine, told: type[Event], hung: threading.Event
) -> None:
    def emit(event: Event) -> None:
        if isinstance(event, told):
            hung.wait(BLOCKED)
            hung.set()

    started = time.monotonic()
    _, lived = life(repo, local_engine, emit=emit)
    assert lived < DEADLINE + GRACE + 1
    assert time.monotonic() - started < 2 * BLOCKED


def test_the_log_limit_does_not_wait_for_measuring(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, hung: threading.Event
) -> None:
    def measured(*_: object, **__: object) -> DiskUse:
        hung.wait(BLOCKED)
        return NOTHING

    monkeypatch.setattr("orchestrator.execution.limits.disk_use", measured)
    flood = "sleep 1; head -c 2000000 /dev/zero"
    result, lived = life(repo, local_engine, flood, deadline=30.0)
    assert result.reason is Reason.LOG_LIMIT
    assert lived < 3
