"""Agent programs, found by name."""

from importlib.metadata import entry_points

from orchestrator.agents.base import Agent
from orchestrator.errors import ConfigError


def load_agent(name: str) -> Agent:
    """Make the adapter of that name.

    Raises:
        ConfigError: No installed package offers it.
    """
    offered = {point.name: point for point in entry_points(group="orchestrator.agents")}
    if name not in offered:
        raise ConfigError(
            f"unknown agent program: `{name}`",
            hint=f"`--agent-cli` takes one of: {', '.join(sorted(offered))}",
        )
    agent: Agent = offered[name].load()()
    return agent
