"""Which networks and hosts the containers of a worker may reach, in each stage of its life."""

from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.config.settings.container import GATEWAYS, Network
from orchestrator.config.settings.run import ParallelConfig


class Access(NamedTuple):
    """The network of a container, and the hosts that it may reach there."""

    network: Network
    allow: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageAccess:
    """Network access of a worker's containers, for each stage: setup, task, teardown, checks."""

    task: Access
    """Access of the agent and the services."""
    setup: Access
    teardown: Access
    checks: Access
    setup_reads: bool
    """Whether the setup commands read private repositories through the broker."""


def stage_access(config: ParallelConfig) -> StageAccess:
    """Return the access of each stage of a worker, including stages without commands."""
    ours = config.isolation

    def access(network: Network, own: tuple[str, ...] = ()) -> Access:
        # Entries of an allow-list do not apply to an open network, and vice versa.
        both = {network, ours.network}
        differs = "open" in both and bool(both & GATEWAYS)
        return Access(network, own or (() if differs else ours.allow))

    task, setup = access(ours.network), access(config.setup_network, ours.setup_allow)
    is_given = bool(config.isolation.git_read) and config.isolation.keys == "broker"
    has_setup = bool(config.project.setup) and "setup" not in config.closed_stages
    # Only one of a worker's networks can have the IP address by which the broker recognises it.
    has_address = setup == task or not config.project.services
    return StageAccess(
        task=task,
        setup=setup,
        setup_reads=is_given and has_address and has_setup,
        teardown=access(config.teardown_network),
        checks=access(ours.check_network, ours.check_allow),
    )


def accesses_with_network(config: ParallelConfig) -> tuple[Access, ...]:
    """Return each different network access that a worker's stages use, except `none`."""
    found, project = stage_access(config), config.project
    used = (
        (found.task, True),
        (found.setup, bool(project.setup)),
        (found.teardown, bool(project.teardown)),
        (found.checks, bool(project.checks)),
    )
    return tuple(
        dict.fromkeys(access for access, is_used in used if is_used and access.network != "none")
    )
