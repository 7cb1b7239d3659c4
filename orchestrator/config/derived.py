"""Settings that are derived from other settings.

Mypy checks the arguments of these functions, which it cannot do for those of `model_copy`. As with
`model_copy`, the values are not validated again.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict, Unpack

from orchestrator.config.settings.container import Isolation, Limits, Network, Transfer
from orchestrator.config.settings.project import Project
from orchestrator.config.settings.run import MOST_WORKERS, ParallelConfig, StageKey, Triggers


class RunChanges(TypedDict, total=False):
    """Settings of a run that other settings replace, as in `ParallelConfig`."""

    tasks: tuple[str, ...]
    models: tuple[str, ...]
    workers: int
    auto_workers: bool
    agent_cli: str
    image: str | None
    api_base: str | None
    agent_config: str | None
    base: str
    include_uncommitted: bool
    context: str | None
    worktrees: Literal["start", "end", "none"]
    stagger: float
    retention: str | None
    retries: int
    fail_fast: bool
    timeout_per_worker: float
    budget_per_worker: float | None
    budget_total: float | None
    tokens_per_worker: int | None
    tokens_total: int | None
    closed_stages: tuple[StageKey, ...]
    limits: Limits
    isolation: Isolation
    triggers: Triggers
    project: Project


class IsolationChanges(TypedDict, total=False):
    """Settings of containers that other settings replace, as in `Isolation`."""

    network: Network
    setup_network: Network | None
    check_network: Network
    allow: tuple[str, ...]
    keys: Literal["env", "broker"]
    runtime: str | None
    env: dict[str, str]
    secrets: tuple[str, ...]
    ports: dict[str, int]
    copied: tuple[str, ...]
    transfer: Transfer


def with_changes(config: ParallelConfig, **changes: Unpack[RunChanges]) -> ParallelConfig:
    """Return the settings with some replaced."""
    return config.model_copy(update=changes)


def with_isolation(config: ParallelConfig, **changes: Unpack[IsolationChanges]) -> ParallelConfig:
    """Return the settings with some settings of the isolation replaced."""
    return with_changes(config, isolation=config.isolation.model_copy(update=changes))


def without_checks(config: ParallelConfig) -> ParallelConfig:
    """Return the settings of a run whose workers' commits are not checked."""
    return with_changes(config, project=config.project.model_copy(update={"checks": ()}))


def for_commands(config: ParallelConfig, commands: Sequence[str]) -> ParallelConfig:
    """Return the settings as settings for a run with a worker for each command."""
    workers = min(max(len(commands), 1), MOST_WORKERS)
    return with_changes(
        config,
        tasks=tuple(commands),
        agent_cli="shell",
        agent_config=None,
        models=(),
        workers=workers,
    )


def for_checks(config: ParallelConfig, commands: Sequence[str]) -> ParallelConfig:
    """Return the settings as settings for a run whose tasks are checks on a commit.

    Image, limits, setup and services stay. A check gets no variables, secrets, ports and copied
    files of the user. It must not be stopped because another check failed, nor by alerts about its
    output and files, nor by a cost that the tested code claims.
    """
    ours, empty = config.isolation, Isolation()
    closed = with_isolation(
        for_commands(config, commands),
        network=ours.check_network,
        allow=ours.check_allow,
        env=empty.env,
        secrets=empty.secrets,
        ports=empty.ports,
        copied=empty.copied,
    )
    # protection: settings-for-agents-do-not-end-checks
    return with_changes(
        without_checks(closed),
        worktrees="none",
        include_uncommitted=False,
        retries=0,
        fail_fast=False,
        stagger=0.0,
        retention=None,
        triggers=Triggers(prompts=0),
        budget_per_worker=None,
        budget_total=None,
        tokens_per_worker=None,
        tokens_total=None,
    )
