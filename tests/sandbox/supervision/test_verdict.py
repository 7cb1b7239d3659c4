"""Tests of the precedence of observations in the verdict on a worker."""

import pytest

from orchestrator.agents.base import AgentOutcome
from orchestrator.base.results import Reason, Status
from orchestrator.engine.interface.protocol import ExitStatus
from orchestrator.sandbox.supervision.verdict import judge
from orchestrator.state.worker.endings import Ending, Stop

SUCCESS = AgentOutcome(status=Status.SUCCESS, cost=0.5)
PARTIAL = AgentOutcome(status=Status.PARTIAL, reason=Reason.MAX_STEPS, message="50 steps")
FAILED = AgentOutcome(status=Status.FAILED, reason=Reason.AUTH, message="no key")


def ended(code: int | None = 0, *, oom: bool = False, **rest) -> Ending:
    status = None if code is None else ExitStatus(exit_code=code, oom_killed=oom)
    return Ending(started_at=None, duration=1.0, exit_status=status, **rest)


def stopped(reason: Reason, code: int = 143, *, oom: bool = False, **rest) -> Ending:
    return ended(code, oom=oom, stopped=Stop(reason, "as measured"), **rest)


CASES = {
    "all is well": (ended(), SUCCESS, Status.SUCCESS, None),
    "its word counts where nothing speaks against it": (
        ended(), PARTIAL, Status.PARTIAL, Reason.MAX_STEPS,
    ),
    "a failure with exit code 0": (ended(), FAILED, Status.FAILED, Reason.AUTH),
    "exit code outranks a report of success": (
        ended(3), SUCCESS, Status.FAILED, Reason.AGENT_FAILED,
    ),
    "a failure says more than the exit code": (ended(3), FAILED, Status.FAILED, Reason.AUTH),
    "memory outranks a report of success": (
        ended(137, oom=True), SUCCESS, Status.FAILED, Reason.OOM,
    ),
    "memory outranks exit code 0": (ended(0, oom=True), SUCCESS, Status.FAILED, Reason.OOM),
    "the deadline outranks a report": (
        stopped(Reason.TIMEOUT, 0), SUCCESS, Status.TIMEOUT, Reason.TIMEOUT,
    ),
    "the deadline outranks memory": (
        stopped(Reason.TIMEOUT, 137, oom=True), FAILED, Status.TIMEOUT, Reason.TIMEOUT,
    ),
    "silence is a time-out": (stopped(Reason.IDLE), SUCCESS, Status.TIMEOUT, Reason.IDLE),
    "a budget stop is partial": (stopped(Reason.BUDGET), SUCCESS, Status.PARTIAL, Reason.BUDGET),
    "a stop for its steps is partial": (
        stopped(Reason.MAX_STEPS), SUCCESS, Status.PARTIAL, Reason.MAX_STEPS,
    ),
    "cancelled": (stopped(Reason.CANCELLED), SUCCESS, Status.FAILED, Reason.CANCELLED),
    "forking": (stopped(Reason.PIDS), SUCCESS, Status.FAILED, Reason.PIDS),
    "disk": (stopped(Reason.DISK), PARTIAL, Status.FAILED, Reason.DISK),
    "a lost network explains a failure": (
        ended(1, lost_network="gone"), FAILED, Status.FAILED, Reason.NETWORK_LOST,
    ),
    "a lost network explains a missing report": (
        ended(1, lost_network="gone"), SUCCESS, Status.FAILED, Reason.NETWORK_LOST,
    ),
    "the deadline outranks a lost network": (
        stopped(Reason.TIMEOUT, lost_network="gone"), FAILED, Status.TIMEOUT, Reason.TIMEOUT,
    ),
    "an engine that broke outranks all": (
        stopped(Reason.TIMEOUT, error="gone"), SUCCESS,
        Status.FAILED, Reason.ENGINE_ERROR,
    ),
    "an end that nobody saw": (ended(None), None, Status.FAILED, Reason.ENGINE_ERROR),
    "a failure at the process limit": (
        ended(1, limits_hit=("pids",)), FAILED, Status.FAILED, Reason.PIDS,
    ),
    "a failure at the limit of disk, before the worker was stopped": (
        ended(1, limits_hit=("disk", "inodes")), FAILED, Status.FAILED, Reason.DISK,
    ),
    "a failure at the limit of files, before the worker was stopped": (
        ended(1, limits_hit=("inodes",)), FAILED, Status.FAILED, Reason.INODES,
    ),
    "touching the process limit is no failure": (
        ended(limits_hit=("pids",)), SUCCESS, Status.SUCCESS, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_verdict(case: str) -> None:
    ending, outcome, status, reason = CASES[case]
    verdict = judge(ending, outcome, budget=None)
    assert (verdict.status, verdict.reason) == (status, reason)
    assert (verdict.message is None) == (status is Status.SUCCESS)


@pytest.mark.parametrize(
    ("budget", "cost", "reason"),
    [(0.4, 0.5, Reason.BUDGET), (0.5, 0.5, None), (None, 0.5, None), (0.4, None, None)],
)
def test_success_over_the_budget_is_partial(
    budget: float | None, cost: float | None, reason: Reason | None
) -> None:
    verdict = judge(ended(), AgentOutcome(status=Status.SUCCESS, cost=cost), budget=budget)
    assert verdict.reason is reason
    assert verdict.status is (Status.PARTIAL if reason else Status.SUCCESS)


def test_message_contains_the_measurement() -> None:
    assert judge(stopped(Reason.DISK), SUCCESS, budget=None).message == "as measured"
    assert judge(ended(error="gone"), None, budget=None).message == "gone"


def test_lost_network_is_mentioned_whatever_the_verdict_is() -> None:
    lost = "the worker lost its network: gone"
    found = judge(ended(lost_network="gone"), SUCCESS, budget=None)
    assert (found.status, found.message) == (Status.SUCCESS, lost)
    found = judge(stopped(Reason.TIMEOUT, lost_network="gone"), None, budget=None)
    assert found.message == f"as measured; {lost}"
    found = judge(stopped(Reason.NETWORK_LOST, lost_network="gone"), None, budget=None)
    assert found.message == "as measured"
