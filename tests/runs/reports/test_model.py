"""Tests of the model of a run, which is read from the run's files alone."""

import fcntl
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.base.events import (
    Event,
    Intervention,
    ProviderPaused,
    RunStarted,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
    WorkerStopping,
)
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.runs.reports.model import RunReport, read_run
from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.states import PhaseKind, RunState, WorkerState
from orchestrator.state.run_directory import RunDirectory
from tests.support.reports import BASE, RUN_ID, at

RECORDED = Path(__file__).parents[2] / "data" / "state-2887ec5" / "orchestrator" / "runs"
TASKS = "20261122-052948-d18ff2"
WORKFLOW = "20261122-053001-07e10d"
KILLED = "20261122-053014-355f3b"


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Return the directory of a run with two workers, without its process."""
    run = RunDirectory(tmp_path / "runs" / RUN_ID)
    run.path.mkdir(parents=True)
    (run.path / "lease").touch()
    workers = ",".join(WorkerSpec(worker_id=n, task=f"task {n}", model=None).model_dump_json()
                       for n in (4, 5))  # fmt: skip
    (run.path / "run.json").write_text(
        f'{{"run_id": "{RUN_ID}", "created_at": "{at(0).isoformat()}", "top": "/repo", '
        f'"base": "{BASE}", "engine": "docker", "workers": [{workers}]}}'
    )
    return run


def recorded(tmp_path: Path, run_id: str) -> RunReport:
    shutil.copytree(RECORDED / run_id, tmp_path / run_id)
    report = read_run(RunDirectory(tmp_path / run_id))
    assert report is not None
    return report


def specs() -> tuple[WorkerSpec, ...]:
    return tuple(WorkerSpec(worker_id=n, task=f"task {n}", model=None) for n in (4, 5))


def started() -> RunStarted:
    return RunStarted(at=at(0), run_id=RUN_ID, base=BASE, workers=specs(), slots=1)


def done(number: int, seconds: float) -> WorkerDone:
    result = WorkerResult(
        worker_id=number, branch=f"b{number}", model="default", status=Status.SUCCESS,
        worktree_path="", started_at=at(2), duration=3.0,
    )  # fmt: skip
    return WorkerDone(at=at(seconds), result=result)


def write(run: RunDirectory, *events: Event) -> None:
    for event in events:
        run.log_event(event)


def spans(report: RunReport, key: str) -> list[tuple[str, float, float]]:
    start = report.started_at
    return [
        (phase.kind.value, (phase.start - start) / timedelta(seconds=1),
         (phase.end - start) / timedelta(seconds=1))
        for worker in report.workers
        if worker.key == key
        for phase in worker.phases
    ]  # fmt: skip


def test_an_ended_run_of_an_older_version(tmp_path: Path) -> None:
    report = recorded(tmp_path, TASKS)
    assert (report.state, report.status) == (RunState.FINISHED, Status.FAILED)
    assert [(w.key, w.status, w.reason) for w in report.workers] == [
        ("worker-1", Status.SUCCESS, None),
        ("worker-2", Status.FAILED, Reason.AGENT_FAILED),
        ("worker-3", Status.TIMEOUT, Reason.TIMEOUT),
    ]
    kinds = [phase.kind.value for phase in report.workers[2].phases]
    assert kinds == ["queue", "prepare", "agent", "stop", "harvest"]
    assert [worker.key for worker in report.bad] == ["worker-2", "worker-3"]
    assert report.critical_path == ("worker-3",)
    assert report.ended_at is not None
    assert sum(p.seconds for p in report.workers[0].phases) < report.duration


def test_a_workflow_has_names_dependencies_and_a_critical_path(tmp_path: Path) -> None:
    report = recorded(tmp_path, WORKFLOW)
    assert report.name is not None
    assert [worker.key for worker in report.workers][:2] == ["build", "check"]
    assert report.workers[1].depends_on
    assert set(report.critical_path) <= {worker.key for worker in report.workers}
    marked = tuple(worker.key for worker in report.workers if worker.is_critical)
    assert set(marked) == set(report.critical_path)


def test_a_run_whose_process_died(tmp_path: Path) -> None:
    report = recorded(tmp_path, KILLED)
    assert (report.state, report.status, report.ended_at) == (RunState.DIED, None, None)
    left = [worker for worker in report.unfinished if worker.phases]
    assert left
    for worker in left:
        assert worker.phases[-1].is_open
        assert worker.phases[-1].end == report.until


def test_a_record_that_cannot_be_read_is_no_report(tmp_path: Path) -> None:
    assert read_run(RunDirectory(tmp_path / "none")) is None


def test_every_phase_of_a_live_run(directory: RunDirectory) -> None:
    write(
        directory,
        started(),
        WorkerPreparing(at=at(1), worker_id=4),
        WorkerStage(at=at(2), worker_id=4, stage="setup", container="c"),
        WorkerStageDone(at=at(3), worker_id=4, stage="setup", duration=1.0),
        WorkerStarted(at=at(4), worker_id=4, container="c"),
        WorkerRetrying(at=at(9), worker_id=4, attempt=2, reason="oom", delay=1.0),
        WorkerPreparing(at=at(11), worker_id=4),
        WorkerStarted(at=at(12), worker_id=4, container="d"),
        ProviderPaused(at=at(12.5), provider="p", seconds=60, known=True),
        Intervention(at=at(13), worker_id=4, trigger="needs_input", detail="Go on?", stops=False),
    )
    lease = (directory.path / "lease").open("r+")
    with lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        report = read_run(directory, now=at(20))
    assert report is not None
    assert (report.state, report.until, report.slots) == (RunState.RUNNING, at(20), 1)
    assert spans(report, "worker-1") == [
        ("queue", 0, 1), ("prepare", 1, 2), ("setup", 2, 3), ("start", 3, 4), ("agent", 4, 9),
        ("retry", 9, 11), ("prepare", 11, 12), ("agent", 12, 20),
    ]  # fmt: skip
    first, second = report.workers
    assert [phase.attempt for phase in first.phases] == [1, 1, 1, 1, 1, 2, 2, 2]
    assert (first.state, first.container, first.seconds) == (WorkerState.RUNNING, "d", 8.0)
    assert first.outcome == "needs attention (needs_input)"
    assert spans(report, "worker-2") == [("queue", 0, 20)]
    assert second.phases[0].is_open
    (pause,) = report.pauses
    assert (pause.provider, pause.start, pause.end) == ("p", at(12.5), at(20))


def test_checks_and_teardown_are_phases_with_their_problems(directory: RunDirectory) -> None:
    write(
        directory,
        started(),
        WorkerPreparing(at=at(1), worker_id=4),
        WorkerStarted(at=at(2), worker_id=4, container="c"),
        WorkerStopping(at=at(4), worker_id=4, reason="timeout"),
        WorkerStage(at=at(5), worker_id=4, stage="teardown", container="t"),
        WorkerStageDone(at=at(6), worker_id=4, stage="teardown", duration=1, problem="bad"),
        WorkerHarvesting(at=at(7), worker_id=4),
        WorkerStage(at=at(8), worker_id=4, stage="check", name="lint", container="t"),
        WorkerStageDone(at=at(9), worker_id=4, stage="check", name="lint", duration=1),
        done(4, 10),
    )
    report = read_run(directory)
    assert report is not None
    assert spans(report, "worker-1") == [
        ("queue", 0, 1), ("prepare", 1, 2), ("agent", 2, 4), ("stop", 4, 5), ("teardown", 5, 6),
        ("stop", 6, 7), ("harvest", 7, 8), ("check", 8, 9), ("harvest", 9, 10),
    ]  # fmt: skip
    phases = {phase.kind: phase for phase in report.workers[0].phases}
    assert phases[PhaseKind.TEARDOWN].problem == "bad"
    assert phases[PhaseKind.CHECK].name == "lint"
    assert not any(phase.is_open for phase in report.workers[0].phases)


def test_no_phase_ends_before_its_start_if_the_clock_is_set_back() -> None:
    events = [
        started(),
        WorkerPreparing(at=at(-5), worker_id=4),
        WorkerStarted(at=at(3), worker_id=4, container="c"),
    ]
    run = RunView()
    for event in events:
        run.apply(event)
    phases = run.snapshot(at(1)).by_number[4].phases
    assert [(phase.kind, phase.start, phase.end) for phase in phases] == [
        (PhaseKind.QUEUE, at(0), at(0)),
        (PhaseKind.PREPARE, at(-5), at(3)),
        (PhaseKind.AGENT, at(3), at(3)),
    ]


def test_attempts_are_read_from_their_directories(directory: RunDirectory) -> None:
    archived = directory.attempt(4, 1)
    archived.mkdir()
    result = done(4, 1).result.model_copy(update={"status": Status.FAILED, "reason": Reason.OOM})
    (archived / "attempt.json").write_text(result.model_dump_json())
    write(directory, started(), done(4, 9), done(5, 9))
    report = read_run(directory)
    assert report is not None
    assert [attempt.reason for attempt in report.workers[0].attempts] == [Reason.OOM]
    assert report.state is RunState.FINISHED


def test_a_worker_without_events_has_the_phase_of_its_result(directory: RunDirectory) -> None:
    for number in (4, 5):
        directory.write_result(done(number, 1).result)
    report = read_run(directory)
    assert report is not None
    assert spans(report, "worker-1") == [("agent", 2, 5)]
