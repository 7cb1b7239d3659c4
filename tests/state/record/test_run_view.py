"""Tests of the model of a run: what events mean for all that shows the run."""

import io

import pytest
from rich.console import Console

from orchestrator.base.events import (
    Event,
    Intervention,
    Notice,
    RunStarted,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
    WorkerStopping,
    WorkerWaiting,
)
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.faces.cli.output.live_table import BoardView
from orchestrator.faces.web.summaries import badge_of
from orchestrator.state.record.run_view import MOST_NOTICES, RunView
from orchestrator.state.record.states import RunState, WorkerState
from orchestrator.state.record.worker_view import WorkerView
from tests.support.reports import BASE, RUN_ID, at
from tests.support.web import result_of

SPECS = tuple(WorkerSpec(worker_id=number, task="do it", model=None) for number in (1, 2, 3))
STARTED = RunStarted(at=at(0), run_id=RUN_ID, base=BASE, workers=SPECS, slots=2)
RUNS = WorkerStarted(at=at(2), worker_id=1, container="c")
ASKS = Intervention(at=at(3), worker_id=1, trigger="needs_input", detail="Go on?", stops=False)


def run_of(*events: Event, first: RunStarted = STARTED) -> RunView:
    """Return a run after events."""
    run = RunView()
    for event in (first, *events):
        run.apply(event)
    return run


def worker_of(*events: Event) -> WorkerView:
    """Return worker 1, 60 seconds after the start of the run."""
    return run_of(*events).snapshot(at(60)).by_number[1]


@pytest.mark.parametrize(("events", "state", "container"), [
    ((), "queued", None),
    ((WorkerPreparing(at=at(1), worker_id=1),), "preparing", None),
    ((WorkerStage(at=at(1), worker_id=1, stage="setup", container="s"),), "setup", "s"),
    ((WorkerStageDone(at=at(1), worker_id=1, stage="setup", duration=1),), "preparing", None),
    ((RUNS,), "running", "c"),
    ((RUNS, WorkerStopping(at=at(3), worker_id=1, reason="r")), "stopping", "c"),
    ((RUNS, WorkerHarvesting(at=at(3), worker_id=1)), "harvesting", None),
    ((WorkerStage(at=at(1), worker_id=1, stage="check", container="k"),), "check", "k"),
    ((RUNS, WorkerRetrying(at=at(3), worker_id=1, attempt=2, reason="r", delay=1)), "retrying",
     None),
    ((RUNS, WorkerDone(at=at(3), result=result_of(1))), "done", None),
])  # fmt: skip
def test_state_and_container_follow_the_events(events, state, container) -> None:
    worker = worker_of(*events)
    assert (worker.state, worker.container) == (WorkerState(state), container)
    assert worker.word == (state if state != "done" else "success")


def test_a_worker_that_needs_attention_has_one_name_everywhere() -> None:
    worker = worker_of(RUNS, ASKS)
    assert (worker.word, worker.ending) == ("needs attention", "needs attention (needs_input)")
    badge = badge_of(worker.word)
    assert (badge.word, badge.tone) == ("Needs attention", "warning")
    view, paper = BoardView(io.StringIO()), io.StringIO()
    for event in (STARTED, RUNS, ASKS):
        view(event)
    Console(file=paper, width=120).print(view.render())
    assert "needs attention" in paper.getvalue()
    assert worker_of(RUNS, ASKS, WorkerHarvesting(at=at(4), worker_id=1)).word == "harvesting"


def test_an_alert_of_an_earlier_attempt_needs_no_attention_in_the_next() -> None:
    again = (
        WorkerRetrying(at=at(4), worker_id=1, attempt=2, reason="idle", delay=0),
        WorkerStarted(at=at(5), worker_id=1, container="d"),
    )
    worker = worker_of(RUNS, ASKS, *again)
    assert (worker.word, len(worker.alerts)) == ("running", 1)
    assert worker_of(RUNS, ASKS, *again, ASKS.model_copy(update={"at": at(6)})).attention


def test_a_worker_of_a_run_that_died_is_queued_once_the_run_is_resumed() -> None:
    lost = result_of(2)
    before = run_of(RUNS, WorkerDone(at=at(3), result=lost))
    died = before.snapshot(at(9), state=RunState.DIED)
    assert [worker.word for worker in died.workers] == ["died", "success", "died"]
    before.apply(STARTED.model_copy(update={"at": at(20)}))
    assert {worker.word for worker in before.snapshot(at(21)).workers} == {"queued"}
    before.apply(WorkerDone(at=at(21), result=lost))
    ended = before.snapshot(at(22)).by_number[2]
    assert (ended.word, ended.phases[-1].end) == ("success", at(3))


def test_a_snapshot_does_not_change_with_later_events() -> None:
    run = run_of(RUNS)
    snapshot = run.snapshot(at(5))
    run.apply(Notice(message="later"))
    run.apply(WorkerDone(at=at(9), result=result_of(1)))
    (worker, *_), notices = snapshot.workers, snapshot.notices
    assert (worker.word, worker.seconds, notices) == ("running", 3.0, ())
    assert len(snapshot.events) == 2


def test_reasons_to_wait_are_recorded_ones_or_that_all_slots_are_in_use() -> None:
    waits = WorkerWaiting(at=at(1), worker_id=3, cause="dependency", reason="task `plan` first")
    both = (RUNS, WorkerPreparing(at=at(2), worker_id=2))
    assert run_of(*both).snapshot(at(3)).reasons_to_wait() == {3: "all 2 slots are in use"}
    assert run_of(*both, waits).snapshot(at(3)).reasons_to_wait() == {3: "task `plan` first"}
    assert run_of(waits).snapshot(at(3), state=RunState.DIED).reasons_to_wait() == {}
    assert run_of(RUNS).snapshot(at(3)).reasons_to_wait() == {}


def test_of_many_notices_the_first_and_the_last_are_kept() -> None:
    run = run_of(*(Notice(at=at(1), message=str(number)) for number in range(150)))
    assert len(run.notices) == MOST_NOTICES
    assert (run.notices[0], run.notices[49], run.notices[50], run.notices[-1]) == (
        "0", "49", "100", "149",
    )  # fmt: skip


def test_the_time_after_the_end_of_the_container_is_no_time_of_the_agent() -> None:
    result = result_of(1, started_at=at(2), duration=3.0)
    worker = worker_of(RUNS, WorkerDone(at=at(9), result=result))
    spans = [(phase.kind.value, phase.end) for phase in worker.phases]
    assert spans == [("queue", at(2)), ("agent", at(5)), ("stop", at(9))]


def test_a_result_without_an_event_ends_the_agents_phase_too() -> None:
    run = run_of(RUNS, WorkerPreparing(at=at(9), worker_id=2))
    results = {1: result_of(1, started_at=at(2), duration=3.0)}
    worker = run.snapshot(at(20), state=RunState.DIED, results=results).by_number[1]
    spans = [(phase.kind.value, phase.end, phase.is_open) for phase in worker.phases]
    assert spans == [("queue", at(2), False), ("agent", at(5), False), ("stop", at(9), True)]
    assert run.by_number[1].result is None
