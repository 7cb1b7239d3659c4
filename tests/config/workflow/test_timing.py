"""Tests of the timing summary of a run."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.config.workflow.timing import Summary, summarise

START = datetime(2026, 1, 1, tzinfo=UTC)


def result(number: int, begin: float | None, seconds: float, name: str | None = None):
    return WorkerResult(
        worker_id=number,
        branch=f"architect/parallel-{number}",
        model="default",
        status=Status.SUCCESS if begin is not None else Status.FAILED,
        reason=None if begin is not None else Reason.DEPENDENCY,
        worktree_path="/w",
        name=name,
        duration=seconds,
        started_at=None if begin is None else START + timedelta(seconds=begin),
    )


def workflow(**after: str) -> Workflow:
    tasks = (Task(id=name, task="t", depends_on=tuple(ones)) for name, ones in after.items())
    return Workflow(name="w", tasks=tuple(tasks))


def test_three_concurrent_workers():
    assert summarise([result(n, 0, 5) for n in (1, 2, 3)], wall=5, slots=4) == Summary(
        sequential=15, wall=5, speedup=3, slots=3, utilisation=1, widest=3
    )


def test_critical_path_is_the_longest_path():
    diamond = workflow(a="", b="a", c="a", d="bc", e="")
    ran = [
        result(1, 0, 1, "a"),
        result(2, 1, 3, "b"),
        result(3, 1, 2, "c"),
        result(4, 4, 1, "d"),
        result(5, 0, 4.5, "e"),
    ]
    found = summarise(ran, wall=5, slots=3, workflow=diamond)
    assert found.critical_path == ("a", "b", "d")
    assert found.critical_seconds == 5
    assert (found.sequential, found.speedup, found.widest) == (11.5, 2.3, 3)
    assert found.utilisation == pytest.approx(11.5 / 15, abs=0.001)


def test_skipped_tasks_take_no_time():
    chain = workflow(a="", b="a", c="b")
    ran = [result(1, 0, 2, "a"), result(2, 2, 1, "b"), result(3, None, 0, "c")]
    found = summarise(ran, wall=4, slots=2, workflow=chain)
    assert found.critical_path == ("a", "b")
    assert found.widest == 1


def test_consecutive_workers_do_not_overlap():
    ran = [result(1, 0, 2), result(2, 2, 2), result(3, 3.5, 1)]
    assert summarise(ran, wall=5, slots=3).widest == 2


@pytest.mark.parametrize("results", [[], [result(1, None, 0)]])
def test_empty_run_causes_no_division_by_zero(results):
    found = summarise(results, wall=0, slots=2, workflow=workflow(a=""))
    assert (found.sequential, found.speedup, found.utilisation, found.widest) == (0, 0, 0, 0)
    assert found.critical_path == ()
