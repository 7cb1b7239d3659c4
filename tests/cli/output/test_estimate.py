"""Tests of the estimate of a run's end."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.cli.output.estimate import Estimate, seconds_left
from orchestrator.events import RunStarted, WorkerDone, WorkerPreparing, WorkerStarted
from orchestrator.results import Status, WorkerResult
from orchestrator.worker_spec import WorkerSpec

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
    estimate = Estimate(lambda: now[0])
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

    estimate.note(RunStarted(run_id="r", base="b", workers=specs, slots=2, at=START))
    assert estimate.text() == ""
    for number in (1, 2):
        estimate.note(WorkerPreparing(worker_id=number, at=now[0]))
    pass_time(10)
    estimate.note(WorkerStarted(worker_id=1, container="c", at=now[0]))
    pass_time(230)
    estimate.note(done(1, START))
    assert estimate.text() == "about 4 min left", "two more, in two slots"
    estimate.note(WorkerPreparing(worker_id=3, at=now[0]))
    estimate.note(done(4, None))
    pass_time(100)
    assert estimate.text() == "about 2 min left", "one more"
    pass_time(100)
    assert estimate.text() == "about 7 min left", "a worker runs for much longer than the first"
    for number in (2, 3):
        estimate.note(done(number, START))
    assert estimate.text() == ""
