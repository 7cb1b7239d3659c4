"""Derive a worker's status from what the engine, the agent and git reported. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.agents.base import AgentOutcome
from orchestrator.base.results import CheckResult, Reason, Status
from orchestrator.base.text.quantities import money
from orchestrator.state.worker.endings import Ending


@dataclass(frozen=True)
class Verdict:
    """A worker's status, with its reason and message."""

    status: Status
    reason: Reason | None
    message: str | None

    def with_note(self, note: str | None) -> "Verdict":
        """Return a copy of the verdict with a note appended to its message."""
        return replace(self, message="; ".join(filter(None, (self.message, note))))


# Any other reason for stopping a worker means `failed`.
_STATUS_OF_STOP = {
    Reason.TIMEOUT: Status.TIMEOUT,
    Reason.IDLE: Status.TIMEOUT,
    Reason.BUDGET: Status.PARTIAL,
    Reason.MAX_STEPS: Status.PARTIAL,
}
# Reason and message for a failed worker that reached this limit.
_LIMITS = {
    "memory": (Reason.OOM, "the kernel killed a process at the worker's memory limit"),
    "pids": (Reason.PIDS, "the worker reached its process limit"),
    "open_files": (Reason.OPEN_FILES, "the worker reached its limit of open files"),
    "tmp": (Reason.DISK, "the worker filled /tmp or its home directory"),
    # It was measured while the worker ended by itself.
    "disk": (Reason.DISK, "the worker wrote more than its limit of disk space"),
    "inodes": (Reason.INODES, "the worker created more files than its limit"),
}


def judge(
    ending: Ending,
    outcome: AgentOutcome | None,
    *,
    budget: float | None,
    tokens: int | None = None,
) -> Verdict:
    """Return the verdict on a worker; observations of Docker outrank the agent's report.

    Args:
        ending: The end of the container, as the engine observed it.
        outcome: The agent's report, as parsed by its adapter; None without a report.
        budget: USD that the worker was allowed to spend.
        tokens: Tokens that the worker was allowed to use.
    """
    verdict = _with_services(ending, _judge_task(ending, outcome, budget=budget, tokens=tokens))
    if ending.lost_network is None or verdict.reason is Reason.NETWORK_LOST:
        return verdict
    lost = f"the worker lost its network: {ending.lost_network}"
    if verdict.status is Status.FAILED and _by_engine(ending) is None:
        # protection: lost-network-explains-failure
        return Verdict(Status.FAILED, Reason.NETWORK_LOST, lost).with_note(verdict.message)
    return verdict.with_note(lost)


def _with_services(ending: Ending, verdict: Verdict) -> Verdict:
    """Return the verdict with a note on services that ended before the task.

    A worker whose required service ended fails, whatever the agent reports: its task may have run
    without the service.
    """
    if not ending.dead_services:
        return verdict
    said = "; ".join(f"service `{service.name}` {service.why}" for service in ending.dead_services)
    note = f"before the end of the task, {said}"
    if any(service.required for service in ending.dead_services) and _by_engine(ending) is None:
        return Verdict(Status.FAILED, Reason.SERVICE_DIED, note).with_note(verdict.message)
    return verdict.with_note(note)


def _judge_task(
    ending: Ending, outcome: AgentOutcome | None, *, budget: float | None, tokens: int | None
) -> Verdict:
    seen = _by_engine(ending)
    # protection: observations-override-agents-report
    if seen is not None:
        return seen
    if outcome is None:
        return Verdict(
            Status.FAILED, Reason.ENGINE_ERROR, "the end of the container was not observed"
        )
    failed = ending.exit_status is not None and ending.exit_status.exit_code != 0
    if outcome.status is Status.SUCCESS:
        return _confirm(ending, outcome, failed=failed, budget=budget, tokens=tokens)
    if failed and ending.limits_hit:
        reason, message = _LIMITS[ending.limits_hit[0]]
        return Verdict(outcome.status, reason, message)
    return Verdict(outcome.status, outcome.reason, outcome.message)


def judge_checks(verdict: Verdict, checks: Sequence[CheckResult]) -> Verdict:
    """Return the verdict after a worker's checks: success with a failed check becomes `partial`."""
    failed = [check for check in checks if not check.passed]
    if not failed or verdict.status is not Status.SUCCESS:
        return verdict
    count = f"{len(failed)} of {len(checks)} checks" if len(checks) > 1 else "its check"
    said = "; ".join(check.message or check.name for check in failed)
    return Verdict(Status.PARTIAL, Reason.CHECKS_FAILED, f"{count} failed: {said}")


def _by_engine(ending: Ending) -> Verdict | None:
    if ending.error is not None:
        return Verdict(Status.FAILED, Reason.ENGINE_ERROR, ending.error)
    if ending.stopped is not None:
        status = _STATUS_OF_STOP.get(ending.stopped.reason, Status.FAILED)
        message = ending.stopped.measured
        if status is Status.TIMEOUT and ending.interventions:
            message = f"{message}; noticed before: {ending.interventions[-1].detail}"
        return Verdict(status, ending.stopped.reason, message)
    if ending.exit_status is not None and ending.exit_status.oom_killed:
        return Verdict(
            Status.FAILED, Reason.OOM, "killed: the worker needed more memory than its limit"
        )
    return None


def _confirm(
    ending: Ending,
    outcome: AgentOutcome,
    *,
    failed: bool,
    budget: float | None,
    tokens: int | None,
) -> Verdict:
    # protection: non-zero-exit-code-is-no-success
    if failed and ending.exit_status is not None:
        code = ending.exit_status.exit_code
        return Verdict(Status.FAILED, Reason.AGENT_FAILED, f"exit code {code}")
    if budget is not None and outcome.cost is not None and outcome.cost > budget:
        message = f"the agent spent {money(outcome.cost)} of {money(budget)}"
        return Verdict(Status.PARTIAL, Reason.BUDGET, message)
    if tokens is not None and (outcome.tokens or 0) > tokens:
        message = f"the agent used {outcome.tokens:,} of {tokens:,} tokens"
        return Verdict(Status.PARTIAL, Reason.BUDGET, message)
    return Verdict(Status.SUCCESS, None, None)
