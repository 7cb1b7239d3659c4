"""Everything that must be right before a run creates anything."""

import os
from pathlib import Path

from orchestrator.agents import load_agent
from orchestrator.agents.base import Agent
from orchestrator.config import BASE_IMAGE, ParallelConfig
from orchestrator.context import Ground
from orchestrator.egress import allowed_destinations, check_runtime
from orchestrator.engine.base import ContainerEngine, Egress, EngineFeatures
from orchestrator.errors import ConfigError
from orchestrator.redact import Redactor, secret_variables
from orchestrator.repository import Repository
from orchestrator.secret_files import Secrets, read_secrets

_DEFAULT_CPUS = 2.0


def choose_agent(config: ParallelConfig, agent: Agent | None) -> tuple[Agent, str]:
    """Give the agent program's adapter, and the image it runs in.

    Raises:
        ConfigError: No installed package offers it.
    """
    chosen = agent or load_agent(config.agent_cli)
    return chosen, config.image or chosen.image


def check_ground(
    config: ParallelConfig, root: Path, engine: ContainerEngine, agent: Agent | None
) -> Ground:
    """Check the wishes against the repository, the engine and the machine.

    Raises:
        OrchestratorError: A run could not start.
    """
    repository = Repository(root)
    repository.resolve(config.base)
    chosen, image = choose_agent(config, agent)
    secrets = read_secrets(config.isolation.secrets, os.environ)
    features = engine.check(images=(image, BASE_IMAGE), runtime=config.isolation.runtime)
    return Ground(
        config=config,
        repository=repository,
        engine=engine,
        features=features,
        agent=chosen,
        image=image,
        cpus=_cpus(config, features),
        egress=_egress(config, chosen),
        inherited_env=inherited(chosen),
        secrets=secrets,
        redactor=make_redactor(config, chosen, secrets),
    )


def inherited(agent: Agent) -> dict[str, str]:
    """Give the variables of ours that an agent is handed on."""
    return {name: os.environ[name] for name in agent.inherited_env if name in os.environ}


def _cpus(config: ParallelConfig, features: EngineFeatures) -> float:
    wanted = config.limits.cpus
    if wanted is None:
        return min(_DEFAULT_CPUS, features.cpus)
    if wanted > features.cpus:
        raise ConfigError(
            f"cpus: {wanted:g} is more than the machine has", hint=f"at most {features.cpus}"
        )
    return wanted


def _egress(config: ParallelConfig, agent: Agent) -> Egress | None:
    isolation = config.isolation
    if isolation.network == "none":
        return None
    check_runtime(isolation.runtime)
    environment = {**inherited(agent), **isolation.env}
    urls = [value for name, value in environment.items() if name.endswith(("_BASE", "_URL"))]
    if config.api_base is not None:
        urls.append(config.api_base)
    return Egress(image=BASE_IMAGE, allowed=allowed_destinations(isolation.allow, urls))


def make_redactor(config: ParallelConfig, agent: Agent, secrets: Secrets) -> Redactor:
    """Make what takes secrets out of all that is kept or shown."""
    environment = {**inherited(agent), **config.isolation.env}
    if config.api_base is not None:
        environment["api_base"] = config.api_base
    return Redactor(secrets.values, secret_variables(environment))
