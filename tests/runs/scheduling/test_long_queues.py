"""Tests that the cost of a worker does not grow with the number of waiting workers."""

import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.base.events import Event, RunStarted, WorkerDone, WorkerPreparing
from orchestrator.base.results import Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.runs import runner
from orchestrator.runs.scheduling.start_gate import StartGate
from orchestrator.state.record import status_file
from orchestrator.state.record.status_file import StatusTable
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.turns.result_builder import result_of_skip
from tests.support.local_engine import LocalEngine
from tests.support.runs import configured

_WORKERS = 60


def test_each_waiting_worker_is_checked_only_a_few_times(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    for owner, name in ((RunDirectory, "stop_asked"), (StartGate, "is_open")):
        original = getattr(owner, name)

        def counted(*arguments: object, of: object = original, name: str = name) -> object:
            calls[name] += 1
            return of(*arguments)

        monkeypatch.setattr(owner, name, counted)
    monkeypatch.setattr(
        runner, "attempt", lambda worker: result_of_skip(worker, None, "nothing to do")
    )
    held: list[tuple[int, int]] = []

    def emit(event: Event) -> None:
        if isinstance(event, WorkerDone):
            held.append((threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))))

    config = configured(*["true"] * _WORKERS, workers=3)
    result = runner.ParallelRunner(config, repo, emit=emit, engine=local_engine).execute()
    assert result.status is Status.SUCCESS
    assert len(held) == _WORKERS
    assert calls["stop_asked"] <= 5 * _WORKERS
    assert calls["is_open"] <= 5 * _WORKERS
    # Compare from the middle on: the first workers start the threads of the slots. The least of
    # some counts is what stays; the others count pipes of programs that run at that moment, too.
    middle, end = held[_WORKERS // 3 :][:10], held[-10:]
    assert min(threads for threads, _ in end) <= min(threads for threads, _ in middle) + 2
    assert min(fds for _, fds in end) <= min(fds for _, fds in middle) + 8


def test_row_of_the_status_table_is_rendered_only_when_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rendered: list[str] = []
    original = status_file._cell

    def cell(text: str) -> str:
        rendered.append(text)
        return original(text)

    monkeypatch.setattr(status_file, "_cell", cell)
    workers = tuple(
        WorkerSpec(worker_id=number, task=f"task {number}", model=None)
        for number in range(1, _WORKERS + 1)
    )
    board = StatusTable()
    board.apply(RunStarted(run_id="r", base="b", workers=workers, slots=3))
    board.text()
    for spec in workers:
        board.apply(WorkerPreparing(worker_id=spec.worker_id, at=datetime.now(UTC)))
        assert "In progress" in board.text()
    assert len(rendered) == 4 * 2 * _WORKERS
