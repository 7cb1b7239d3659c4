"""Adapters of agent programs, and how their output is read.

The names in `__all__` are stable: an adapter in another package imports nothing else.
"""

from importlib.metadata import EntryPoint, entry_points

from orchestrator.agents.base import (
    Agent,
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
    ProgressReader,
)
from orchestrator.agents.output.fields import Claims, Cost, Count, Flag, Text, Words
from orchestrator.agents.output.no_report import contradicted, unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import (
    find_report,
    json_lines,
    last_line,
    parse_object,
    text_tail,
)
from orchestrator.agents.plugin import ForeignAgent
from orchestrator.agents.unsupported import unsupported_settings
from orchestrator.engine.protocol import ExitStatus
from orchestrator.errors import ConfigError
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

__all__ = [
    "Agent",
    "AgentCommand",
    "AgentOutcome",
    "AgentOutput",
    "AgentProgress",
    "AgentSettings",
    "Claims",
    "Cost",
    "Count",
    "ExitStatus",
    "Flag",
    "ProgressReader",
    "Reason",
    "Status",
    "Text",
    "Words",
    "WorkerSpec",
    "contradicted",
    "find_report",
    "json_lines",
    "last_line",
    "load_agent",
    "parse_object",
    "retry_after",
    "text_tail",
    "unreported",
    "unsupported_settings",
]

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
