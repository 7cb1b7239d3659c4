"""Networks and hosts that the containers of a worker's stages may reach."""

from typing import NamedTuple

from orchestrator.config.container import GATEWAYS, Network
from orchestrator.config.run import ParallelConfig


class Access(NamedTuple):
    """A network setting, and the hosts that `allow` opens in that network."""

    network: Network
    allow: tuple[str, ...] = ()


class StageAccess(NamedTuple):
    """The network access of the containers of each stage."""

    task: Access
    """Access of the agent and the services."""
    setup: Access
    teardown: Access
    checks: Access


def stage_access(config: ParallelConfig) -> StageAccess:
    """Return the access of each stage of a worker, including stages without commands."""
    ours = config.isolation

    def access(network: Network, own: tuple[str, ...] = ()) -> Access:
        # Entries of an allow-list do not apply to an open network, and vice versa.
        both = {network, ours.network}
        differs = "open" in both and bool(both & GATEWAYS)
        return Access(network, own or (() if differs else ours.allow))

    return StageAccess(
        task=access(ours.network),
        setup=access(config.setup_network, ours.setup_allow),
        teardown=access(config.teardown_network),
        checks=access(ours.check_network, ours.check_allow),
    )


def networked_access(config: ParallelConfig) -> tuple[Access, ...]:
    """Return the different accesses of the worker's containers that have a network."""
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
