"""Tests that a worker's deadline is kept while measuring, logging or callbacks hang."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.events import Event, WorkerOutput, WorkerStopping
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.settings.container import Limits
from orchestrator.engine.interface.protocol import LogChunk, Usage
from orchestrator.runs.runner import ParallelRunner
from orchestrator.sandbox.supervision.limits import LimitMeter
from tests.support.live import LATE, PATIENCE, eventually
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.runs import configured

DEADLINE, GRACE = 2.0, 0.2
LIMITS = Limits(grace=GRACE, log_limit=1 << 20)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.sandbox.supervision.supervisor._LAST", 0.2)


class Hanging:
    """A call that hangs until the worker is dead, so that a waiting clock would hang too."""

    def __init__(self, repo: Path) -> None:
        self._pid = repo.parent / "pid"
        self.saw_death = threading.Event()

    def __call__(self) -> None:
        eventually(self._is_dead, "the worker's death")
        self.saw_death.set()

    def _is_dead(self) -> bool:
        if not self._pid.exists() or not (pid := self._pid.read_text().strip()):
            return False
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        return stat.rpartition(")")[2].split()[0] in "ZX"


@pytest.fixture
def hung(repo: Path) -> Hanging:
    return Hanging(repo)


@pytest.fixture
def hung_measuring(hung: Hanging, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    """Make every measurement of the disk hang."""

    def measured(*_: object) -> None:
        hung()

    monkeypatch.setattr(LimitMeter, "_note_disk", measured)
    return hung


def life(
    repo: Path, engine: LocalEngine, first: str = ":", emit: object = None,
    deadline: float = DEADLINE,
) -> WorkerResult:  # fmt: skip
    """Run a worker that ignores SIGTERM until its end."""
    lives = "while :; do echo x; sleep 0.02; done"
    task = f"trap '' TERM; echo $$ > {repo.parent}/pid; {first}; {lives}"
    config = configured(task, timeout_per_worker=deadline, limits=LIMITS)
    runner = ParallelRunner(config, repo, engine=engine, emit=emit)  # type: ignore[arg-type]
    (result,) = runner.execute().results
    return result


def test_hanging_measurement_does_not_delay_the_deadline(
    repo: Path, local_engine: LocalEngine, hung_measuring: Hanging
) -> None:
    result = life(repo, local_engine)
    assert hung_measuring.saw_death.wait(PATIENCE)
    assert result.reason is Reason.TIMEOUT
    assert DEADLINE <= result.duration < DEADLINE + GRACE + LATE


def test_hanging_usage_call_does_not_delay_the_deadline(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, hung: Hanging
) -> None:
    def usage(_: LocalContainer) -> Usage | None:
        hung()
        return None

    monkeypatch.setattr("orchestrator.sandbox.supervision.limits.MEASURE", 0.0)
    monkeypatch.setattr(LocalContainer, "usage", usage)
    result = life(repo, local_engine)
    assert hung.saw_death.wait(PATIENCE)
    assert result.reason is Reason.TIMEOUT


@pytest.mark.parametrize("told", [WorkerOutput, WorkerStopping])
def test_hanging_callback_does_not_delay_the_deadline(
    repo: Path, local_engine: LocalEngine, told: type[Event], hung: Hanging
) -> None:
    def emit(event: Event) -> None:
        if isinstance(event, told):
            hung()

    life(repo, local_engine, emit=emit)
    assert hung.saw_death.is_set()


def test_log_limit_does_not_wait_for_measurements(
    repo: Path, local_engine: LocalEngine, hung_measuring: Hanging
) -> None:
    flood = "sleep 1; head -c 2000000 /dev/zero"
    result = life(repo, local_engine, flood, deadline=50.0)
    assert hung_measuring.saw_death.wait(PATIENCE)
    assert result.reason is Reason.LOG_LIMIT


def test_silence_counts_from_the_start_of_the_container(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine may need longer for the start than the worker may be silent."""
    start = LocalContainer.start

    def slow(container: LocalContainer) -> None:
        if container.spec.command[-1] == task:
            time.sleep(1.5)
        start(container)

    task = "sleep 0.3"
    monkeypatch.setattr(LocalContainer, "start", slow)
    config = configured(task, limits=Limits(idle_timeout=1.4))
    (result,) = ParallelRunner(config, repo, engine=local_engine).execute().results
    assert (result.reason, result.status) == (None, Status.SUCCESS)
    assert 0.3 <= result.duration < 1.4


def test_output_that_the_engine_does_not_send_is_read_again(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine says after the first bytes that there are no more, and keeps the others."""
    monkeypatch.setattr("orchestrator.sandbox.supervision.supervisor._LATEST_END", 0.5)
    real, readers = LocalContainer.logs, list[threading.Thread]()

    def cut(container: LocalContainer) -> Iterator[LogChunk]:
        chunks = real(container)
        if readers:
            # What one reader takes, another one gets from the record.
            readers[0].join()
            yield from chunks
            return
        yield next(iter(chunks))
        readers.append(threading.Thread(target=list, args=(chunks,)))
        readers[0].start()

    monkeypatch.setattr(LocalContainer, "logs", cut)
    config = configured("echo early; sleep 1.5; echo late", limits=LIMITS)
    (result,) = ParallelRunner(config, repo, engine=local_engine).execute().results
    readers[0].join()
    assert result.status is Status.SUCCESS
    assert (Path(result.log or "") / "stdout.log").read_text() == "early\nlate\n"
