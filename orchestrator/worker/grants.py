"""Admit containers of a worker to the credential broker, and end their calls."""

from orchestrator.broker.grant import Grant, hash_token
from orchestrator.broker.repositories import GIT_FILE, git_configuration, git_settings
from orchestrator.config.network_access import Access
from orchestrator.execution.broker import new_token
from orchestrator.files.atomic import write_atomically
from orchestrator.gateway.allowed_host import BROKER_NAME
from orchestrator.worker.context import WorkerContext


def admit_task(worker: WorkerContext) -> str | None:
    """Allow the worker's task to call models and to read repositories through the broker.

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
        calls_per_minute=isolation.calls_per_minute,
        **vars(worker.budget),
    )
    return _admit(worker, grant, token, worker.settings.access.task)


def admit_setup(worker: WorkerContext) -> str | None:
    """Allow the worker's setup to read repositories through the broker, but not to call models.

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
    return _admit(worker, grant, token, worker.settings.access.setup)


def _admit(worker: WorkerContext, grant: Grant, token: str, access: Access) -> str | None:
    link = worker.broker_link(access)
    if worker.run.broker is None or link is None:
        return None
    if grant.repositories:
        settings = git_settings(grant.repositories, f"http://{BROKER_NAME}:{link.port}", token)
        # Users of this machine can read the token, but it is accepted from the worker alone.
        file = worker.directory / GIT_FILE
        write_atomically(file, git_configuration(settings))
        file.chmod(0o644)
    worker.run.broker.admit(worker.number, grant)
    return token


def dismiss(worker: WorkerContext) -> None:
    """End the calls of the worker's container through the broker."""
    if worker.run.broker is not None:
        worker.run.broker.dismiss(worker.number)
