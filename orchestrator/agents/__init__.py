"""Adapters of agent programs, and parsers of their output.

The names in `__all__` are stable. Adapters in other packages should import only these.
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
    Session,
    SessionAgent,
    SessionFiles,
    unsupported_settings,
)
from orchestrator.agents.output.fields import Claims, Cost, Count, Flag, Text, Words, fields
from orchestrator.agents.output.no_report import contradicted, unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import (
    find_report,
    json_lines,
    last_line,
    parse_object,
    text_tail,
)
from orchestrator.agents.plugin import ForeignAgent, ForeignSessionAgent
from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.protocol import ExitStatus

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
    "Counters",
    "ExitStatus",
    "Flag",
    "ProgressReader",
    "Reason",
    "Session",
    "SessionAgent",
    "SessionFiles",
    "Status",
    "Text",
    "Words",
    "WorkerSpec",
    "contradicted",
    "fields",
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
    """Return the adapter of an agent program.

    Raises:
        ConfigError: No installed package provides the adapter, several do, or it is broken.
    """
    offered = entry_points(group="orchestrator.agents")
    # A package that is installed twice, such as from a checkout, provides one adapter.
    points = {point.value: point for point in offered if point.name == name}
    if not points:
        raise ConfigError(
            f"unknown agent program: `{name}`",
            key="agent.unknown",
            hint=f"`--agent-cli` must be one of: {', '.join(sorted(offered.names))}",
        )
    if len(points) > 1:
        packages = sorted(map(_package, points.values()))
        raise ConfigError(
            f"more than one package has an adapter for `{name}`: {', '.join(packages)}",
            key="adapter.ambiguous",
            hint="uninstall all but one of these packages",
        )
    ((value, point),) = points.items()
    if value.startswith(_OURS):
        agent: Agent = point.load()()
        return agent
    foreign = ForeignAgent(name, _package(point), point.load)
    if not foreign.keeps_sessions:
        return foreign
    return ForeignSessionAgent(name, _package(point), point.load)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"
