"""Admit containers of a worker to the credential broker, and read what their calls cost.

The broker's measurements replace the agent's claims, and may explain why an agent failed.
"""

from dataclasses import replace

from orchestrator.agents.base import AgentOutcome
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.results import Reason, Status
from orchestrator.config.settings.values import parse_prices
from orchestrator.engine.places.place import Place
from orchestrator.network.broker.grant import Grant, hash_token
from orchestrator.network.broker.ledger import Spent
from orchestrator.network.broker.repositories import GIT_FILE, git_configuration, git_settings
from orchestrator.network.gateway.allowed_host import BROKER_NAME
from orchestrator.sandbox.sidecars.broker import new_token
from orchestrator.sandbox.supervision.verdict import Verdict
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.workspace.layout import AGENT_STEP

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


def admit_task(worker: WorkerContext, place: Place) -> str | None:
    """Allow the worker's task to call models and to read repositories through the broker.

    Args:
        worker: The worker.
        place: The place of its task.

    Returns:
        The worker's token; None without a broker.

    Raises:
        OrchestratorError: The broker does not start.
    """
    keys, isolation = worker.keys, worker.config.isolation
    if keys is None:
        return None
    token = new_token()
    grant = Grant(
        ledger=worker.ledger,
        token=hash_token(token),
        upstreams=dict(keys.upstreams),
        repositories=keys.repositories,
        models=isolation.key_models,
        prices=parse_prices(isolation.prices),
        calls_per_minute=isolation.calls_per_minute,
        **vars(worker.budget),
    )
    return _admit(worker, grant, token, place, AGENT_STEP)


def admit_setup(worker: WorkerContext, place: Place, step: str) -> str | None:
    """Allow the worker's setup to read repositories through the broker, but not to call models.

    Args:
        worker: The worker.
        place: The place of its setup.
        step: Name of the step that runs the setup.

    Returns:
        The token of the setup; None without a broker.

    Raises:
        OrchestratorError: The broker does not start.
    """
    keys = worker.keys
    if keys is None:
        return None
    token = new_token()
    repositories = keys.repositories
    grant = Grant(
        ledger=worker.ledger, token=hash_token(token), upstreams={}, repositories=repositories
    )
    return _admit(worker, grant, token, place, step)


def _admit(worker: WorkerContext, grant: Grant, token: str, place: Place, step: str) -> str | None:
    link = place.spec.step(step).spec.link
    if worker.run.broker is None or link is None:
        return None
    if grant.repositories:
        settings = git_settings(grant.repositories, f"http://{BROKER_NAME}:{link.port}", token)
        # Users of this machine can read the token, but it is accepted from the worker alone.
        file = worker.directory / GIT_FILE
        write_atomically(file, git_configuration(settings))
        file.chmod(0o644)
    worker.run.broker.admit(worker.number, grant, place, link)
    return token


def dismiss(worker: WorkerContext) -> None:
    """End the calls of the worker's container through the broker."""
    if worker.run.broker is not None:
        # protection: token-is-invalid-after-workers-end
        worker.run.broker.dismiss(worker.number)


def read_spending(worker: WorkerContext) -> Spent | None:
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


def explain(worker: WorkerContext, verdict: Verdict, spent: Spent | None) -> Verdict:
    """Return the verdict with a message about the broker if the agent failed because of it."""
    broker = worker.run.broker
    if spent is None or broker is None or verdict.reason not in _OF_AGENT:
        return verdict
    if "budget" in spent.refused:
        message = "the credential broker refused a call: nothing is left of the worker's budget"
        return Verdict(Status.PARTIAL, Reason.BUDGET, message)
    problem = broker.problem(worker.number)
    if problem is not None:
        return Verdict(Status.FAILED, Reason.ENGINE_ERROR, problem).with_note(verdict.message or "")
    if spent.unpriced:
        return verdict.with_note(
            f"the credential broker refused a call, because it knows no price of {spent.unpriced}; "
            "`--price MODEL=IN/OUT` sets it"
        )
    if "call" in spent.refused:
        return verdict.with_note("the credential broker refused calls that are not on its list")
    return verdict
