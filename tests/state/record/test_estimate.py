"""Tests of the estimate of a run's end."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.base.events import RunStarted, WorkerDone, WorkerPreparing, WorkerStarted
from orchestrator.base.results import Status, WorkerResult
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.state.record.estimate import estimate, seconds_left
from orchestrator.state.record.run_view import RunView

START = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ended", "running", "waiting", "slots", "expected"),
    [
        ([], [5], 3, 2, None),
        ([60], [], 0, 2, None),
        ([60, 120], [30], 0, 2, 60),
        ([90], [200], 0, 2, 200),
        ([3, 3, 600], [400], 0, 2, 200),
        ([60], [0, 30], 1, 2, 90),
        ([60], [], 4, 2, 120),
        ([60], [10], 5, 0, 350),
    ],
)
def test_workers_take_as_long_as_those_before(ended, running, waiting, slots, expected) -> None:
    assert seconds_left(ended, running, waiting, slots) == expected


def test_the_estimate_follows_the_events() -> None:
    now = [START]
    run = RunView()

    def text() -> str:
        return estimate(run.snapshot(now[0]))

    specs = tuple(WorkerSpec(worker_id=number, task="t", model=None) for number in (1, 2, 3, 4))

    def pass_time(seconds: float) -> datetime:
        now[0] += timedelta(seconds=seconds)
        return now[0]

    def done(number: int, started: datetime | None) -> WorkerDone:
        result = WorkerResult(
            worker_id=number, branch="b", status=Status.SUCCESS, model="default",
            worktree_path="/w", started_at=started,
        )  # fmt: skip
        return WorkerDone(result=result, at=now[0])

    run.apply(RunStarted(run_id="r", base="b", workers=specs, slots=2, at=START))
    assert text() == ""
    for number in (1, 2):
        run.apply(WorkerPreparing(worker_id=number, at=now[0]))
    pass_time(10)
    run.apply(WorkerStarted(worker_id=1, container="c", at=now[0]))
    pass_time(230)
    run.apply(done(1, START))
    assert text() == "about 4 min left", "two more, in two slots"
    run.apply(WorkerPreparing(worker_id=3, at=now[0]))
    run.apply(done(4, None))
    pass_time(100)
    assert text() == "about 2 min left", "one more"
    pass_time(100)
    assert text() == "about 7 min left", "a worker runs for much longer than the first"
    for number in (2, 3):
        run.apply(done(number, START))
    assert text() == ""
