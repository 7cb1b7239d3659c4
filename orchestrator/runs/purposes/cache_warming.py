"""Fill the shared caches by a run of one worker that only executes the project's own `setup`.

Only such a run fills caches, and no agent runs in it. So the caches contain only what the project's
own commands downloaded.
"""

import shlex
from importlib.resources import files
from pathlib import Path

from orchestrator.agents.settings_check import choose_agent
from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Emit
from orchestrator.base.results import RunResult, Status
from orchestrator.config.network_access import Access, stage_access
from orchestrator.config.settings.container import GATEWAYS, Isolation
from orchestrator.config.settings.project import Project
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine import connected
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from orchestrator.worker.workspace.caches import WHEELS, environment, remove_generations


def warming_config(config: ParallelConfig) -> ParallelConfig:
    """Return the settings of a run that fills the caches that the given settings name.

    Raises:
        ConfigError: No caches are configured, or there is no `setup` command.
    """
    project = config.project
    if not project.caches:
        raise ConfigError(
            "no caches are configured",
            key="cache.unconfigured",
            hint="write `caches: [pip, npm]` into the configuration file, or use `--cache pip`",
        )
    if not project.setup:
        raise ConfigError(
            "there is no `setup` command to fill the caches with",
            key="setup.missing",
            hint="write `setup: [npm ci]` into the configuration file, or use `--setup CMD`",
        )
    # protection: no-found-files-setup-on-internet
    if "setup" in config.closed_stages:
        raise ConfigError(
            "`setup` commands of a configuration file in the repository may not fill caches",
            key="setup.untrusted",
            hint="pass `--config FILE` if you trust the author of that file",
        )
    return ParallelConfig(
        tasks=(_task(config),),
        workers=1,
        agent_cli="shell",
        image=choose_agent(config, None)[1],
        base=config.base,
        include_uncommitted=config.include_uncommitted,
        max_worktrees=config.max_worktrees,
        limits=config.limits,
        isolation=_isolation(config),
        project=Project(
            caches=project.caches, setup=project.setup, setup_timeout=project.setup_timeout
        ),
    )


def _isolation(config: ParallelConfig) -> Isolation:
    """Return isolation settings that give the `setup` commands a network, and the task none."""
    ours = config.isolation
    access = stage_access(config).setup
    if access.network == "none":
        # Entries of an allow-list do not apply to an open network.
        access = Access(
            "open", ours.setup_allow or (() if ours.network in GATEWAYS else ours.allow)
        )
    return ours.model_copy(
        update={
            "network": "none",
            "setup_network": access.network,
            "allow": (),
            "setup_allow": access.allow,
            "ports": {},
        }
    )


def _task(config: ParallelConfig) -> str:
    if "pip" not in config.project.caches:
        return "true"
    script = files("orchestrator.worker.in_container").joinpath("pip_wheels.py").read_text()
    cache = environment(("pip",), offline=False)["PIP_CACHE_DIR"]
    command = shlex.join(["python3", "-I", "-c", script, cache, WHEELS])
    return f": collect the wheels that pip cached; {command}"


class Warming:
    """A run that fills the caches, and leaves nothing else if it succeeds."""

    def __init__(
        self,
        config: ParallelConfig,
        root: Path,
        *,
        emit: Emit | None = None,
        engine: ContainerEngine | None = None,
    ) -> None:
        """Store the arguments; `config` comes from `warming_config`. Nothing is created yet."""
        self._runner = ParallelRunner(config, root, emit=emit, engine=engine, warms=True)
        self._root = root
        self._engine = engine

    @property
    def run_id(self) -> str | None:
        """The run's id; None before the run is recorded."""
        return self._runner.run_id

    def cancel(self, *, kill: bool = False) -> None:
        """Stop the run without changing the caches.

        Args:
            kill: Whether to kill the container without a grace period.
        """
        self._runner.cancel(kill=kill)

    def execute(self) -> RunResult:
        """Fill the caches.

        Raises:
            OrchestratorError: The run could not start.
        """
        result = self._runner.execute()
        if all(worker.status is Status.SUCCESS for worker in result.results):
            with connected(self._engine) as engine:
                cleanup(self._root, engine=engine, run_id=result.run_id, purge=True)
            remove_generations(Repository(self._root), keep=1)
        return result
