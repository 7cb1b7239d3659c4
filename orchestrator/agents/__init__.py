"""Agent programs, found by name."""

from importlib.metadata import EntryPoint, entry_points

from orchestrator.agents.base import Agent
from orchestrator.agents.plugin import ForeignAgent
from orchestrator.errors import ConfigError

_OURS = "orchestrator.agents."


def load_agent(name: str) -> Agent:
    """Make the adapter of that name.

    Raises:
        ConfigError: No installed package offers it, more than one does, or it is broken.
    """
    offered = entry_points(group="orchestrator.agents")
    # One that is installed twice, such as from a checkout and as a package, is one.
    found = {point.value: point for point in offered if point.name == name}
    if not found:
        raise ConfigError(
            f"unknown agent program: `{name}`",
            hint=f"`--agent-cli` takes one of: {', '.join(sorted(offered.names))}",
        )
    if len(found) > 1:
        packages = sorted(map(_package, found.values()))
        raise ConfigError(
            f"more than one package has an adapter for `{name}`: {', '.join(packages)}",
            hint="remove all but one of them",
        )
    ((value, point),) = found.items()
    if value.startswith(_OURS):
        agent: Agent = point.load()()
        return agent
    return ForeignAgent(name, _package(point), point.load)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"
