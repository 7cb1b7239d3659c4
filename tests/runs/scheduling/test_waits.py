"""Tests of the events that report why workers do not start yet."""

from pathlib import Path

import pytest

from orchestrator.base.errors import StartCancelledError
from orchestrator.base.events import Event, WorkerWaiting
from orchestrator.base.results import Status
from orchestrator.config.settings.run import Provider, RateLimit
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.order import Wait
from orchestrator.runs.runner import ParallelRunner
from orchestrator.runs.scheduling.rate_limits import RateLimiter
from orchestrator.runs.scheduling.start_gate import WaitReports
from orchestrator.sandbox.supervision.pacing.start_throttle import StartThrottle
from tests.support.local_engine import LocalEngine
from tests.support.runs import configured
from tests.support.workflow_runs import task


def test_a_reason_is_reported_when_it_changes() -> None:
    told: list[Event] = []
    reports = WaitReports(told.append, 2)
    for wait in (
        reports.slot,
        Wait("machine", "only 300 MiB of memory are free"),
        Wait("machine", "only 299 MiB of memory are free"),
        Wait("dependency", "tasks `a` and `b` must end first"),
        Wait("dependency", "task `b` must end first"),
        Wait("dependency", "task `b` must end first"),
        reports.slot,
    ):
        reports.note({7: wait})
    reports.forget(7)
    reports.note({7: reports.slot})
    assert [(one.worker_id, one.reason) for one in told if isinstance(one, WorkerWaiting)] == [
        (7, "only 300 MiB of memory are free"),
        (7, "tasks `a` and `b` must end first"),
        (7, "task `b` must end first"),
        (7, "all 2 slots are in use"),
    ]


def test_run_reports_which_tasks_must_end_first(repo: Path, local_engine: LocalEngine) -> None:
    told: list[Event] = []
    flow = Workflow(name="flow", tasks=(
        task("a", "true"), task("b", "true", depends_on=["a"]), task("c", "true"),
    ))  # fmt: skip
    runner = ParallelRunner(
        configured("-", workers=1), repo, engine=local_engine, workflow=flow, emit=told.append
    )
    first, second, _ = runner.run()
    assert (first.status, second.status) == (Status.SUCCESS, Status.SUCCESS)
    waits = [one for one in told if isinstance(one, WorkerWaiting)]
    assert [(one.worker_id, one.cause, one.reason) for one in waits] == [
        (second.worker_id, "dependency", "task `a` must end first")
    ]


def test_provider_that_accepts_no_worker_is_named() -> None:
    few = {"p": Provider(rate_limit=RateLimit(capacity=1, refill_rate=0.001))}
    limiter = RateLimiter(providers=few, slots=4, patience=600)
    assert limiter.why_closed("p", 0) is None
    start = limiter.note_start("p", 0)
    assert limiter.why_closed("p", 1) == "the limit of starts for provider `p` is reached"
    limiter.note_refusal(start, 2, 60)
    assert limiter.why_closed("p", 3) == "provider `p` refuses requests"
    assert limiter.why_closed("other", 3) is None


def test_start_that_is_spaced_out_says_so() -> None:
    pace, told = StartThrottle(1000), list[tuple[str, str]]()
    with pace.turn(lambda: False, tell=lambda *said: told.append(said)):
        assert told == []
    turn = pace.turn(lambda: True, tell=lambda *said: told.append(said))
    with pytest.raises(StartCancelledError), turn:
        pass
    assert told == [("pace", "workers start at least 16 min 40 s apart")]
