"""Use the credential broker's measurements in place of the agent's claims, and explain failures."""

from dataclasses import replace

from orchestrator.agents.base import AgentOutcome
from orchestrator.broker.ledger import Spent
from orchestrator.execution.verdict import Verdict
from orchestrator.results import Reason, Status
from orchestrator.worker.context import WorkerContext

_OF_AGENT = frozenset(
    {
        Reason.AGENT_FAILED,
        Reason.AGENT_ERROR,
        Reason.AUTH,
        Reason.MAX_STEPS,
        Reason.NO_REPORT,
        Reason.RATE_LIMITED,
    }
)
"""Reasons that an agent reports when the broker refuses its calls or has ended."""


def measured(worker: WorkerContext) -> Spent | None:
    """Return what the broker measured for an attempt; None without a broker."""
    broker = worker.run.broker
    if broker is None or worker.config.isolation.keys == "env":
        return None
    return broker.spending(worker.ledger)


def with_measured(outcome: AgentOutcome | None, spent: Spent | None) -> AgentOutcome | None:
    """Return the agent's outcome with cost and tokens as the broker measured them."""
    if outcome is None or spent is None:
        return outcome
    return replace(outcome, cost=spent.cost_if_known, tokens=spent.tokens)


def explained(worker: WorkerContext, verdict: Verdict, spent: Spent | None) -> Verdict:
    """Return the verdict with a message about the broker if the agent failed because of it."""
    broker = worker.run.broker
    if spent is None or broker is None or verdict.reason not in _OF_AGENT:
        return verdict
    if "budget" in spent.refused:
        message = "the credential broker refused a call: nothing is left of the worker's budget"
        return Verdict(Status.PARTIAL, Reason.BUDGET, message)
    problem = broker.problem()
    if problem is not None:
        return Verdict(Status.FAILED, Reason.ENGINE_ERROR, problem).with_note(verdict.message or "")
    if "call" in spent.refused:
        return verdict.with_note("the credential broker refused calls that are not on its list")
    return verdict
