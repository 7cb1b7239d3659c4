"""How a worker ended, from what the engine saw, what the agent said and what git let in. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.agents.base import AgentOutcome
from orchestrator.results import CheckResult, Reason, Status
from orchestrator.state.endings import Ending


@dataclass(frozen=True)
class Verdict:
    """A worker's status and why."""

    status: Status
    reason: Reason | None
    message: str | None

    def with_note(self, note: str) -> "Verdict":
        """Say more; the verdict stays."""
        return replace(self, message="; ".join(filter(None, (self.message, note))))


# Anything else that we stop has failed.
_STATUS_OF_STOP = {
    Reason.TIMEOUT: Status.TIMEOUT,
    Reason.IDLE: Status.TIMEOUT,
    Reason.BUDGET: Status.PARTIAL,
    Reason.MAX_STEPS: Status.PARTIAL,
}
# What a limit that a failed worker ran into makes of its reason.
_LIMITS = {
    "pids": (Reason.PIDS, "it ran into its process limit"),
    "open_files": (Reason.OPEN_FILES, "it ran into its limit of open files"),
    "tmp": (Reason.DISK, "it filled /tmp or its home directory"),
}


def judge(
    ending: Ending,
    outcome: AgentOutcome | None,
    *,
    budget: float | None,
    tokens: int | None = None,
) -> Verdict:
    """Decide: what the engine saw outranks what the agent says of itself.

    Args:
        ending: What the engine saw.
        outcome: The agent's adapter's word; None when there is nothing to read.
        budget: USD that the worker might spend.
        tokens: Those that it might take.
    """
    seen = _by_engine(ending)
    if seen is not None:
        return seen
    if outcome is None:
        return Verdict(Status.FAILED, Reason.ENGINE_ERROR, "the end of the container was not seen")
    failed = ending.exit_status is not None and ending.exit_status.exit_code != 0
    if outcome.status is Status.SUCCESS:
        return _confirmed(ending, outcome, failed=failed, budget=budget, tokens=tokens)
    if failed and ending.limits_hit:
        reason, message = _LIMITS[ending.limits_hit[0]]
        return Verdict(outcome.status, reason, message)
    return Verdict(outcome.status, outcome.reason, outcome.message)


def judge_checks(verdict: Verdict, checks: Sequence[CheckResult]) -> Verdict:
    """Let the checks of what a worker committed say the last word on its success."""
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
        return Verdict(Status.FAILED, Reason.OOM, "killed: it needed more memory than its limit")
    return None


def _confirmed(
    ending: Ending,
    outcome: AgentOutcome,
    *,
    failed: bool,
    budget: float | None,
    tokens: int | None,
) -> Verdict:
    if failed and ending.exit_status is not None:
        code = ending.exit_status.exit_code
        return Verdict(Status.FAILED, Reason.AGENT_FAILED, f"exit code {code}")
    if budget is not None and outcome.cost is not None and outcome.cost > budget:
        message = f"it spent ${outcome.cost:.4f} of ${budget:.4f}"
        return Verdict(Status.PARTIAL, Reason.BUDGET, message)
    if tokens is not None and (outcome.tokens or 0) > tokens:
        message = f"it took {outcome.tokens:,} of {tokens:,} tokens"
        return Verdict(Status.PARTIAL, Reason.BUDGET, message)
    return Verdict(Status.SUCCESS, None, None)
