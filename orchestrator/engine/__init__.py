"""Container engines, found by name."""

from importlib.metadata import entry_points

from orchestrator.engine.base import Engine
from orchestrator.errors import ConfigError


def load_engine(name: str) -> Engine:
    """Make the engine of that name.

    Raises:
        ConfigError: No installed package offers it.
        EngineUnavailableError: It cannot be reached.
    """
    offered = {point.name: point for point in entry_points(group="orchestrator.engines")}
    if name not in offered:
        raise ConfigError(
            f"unknown engine: `{name}`", hint=f"installed engines: {', '.join(sorted(offered))}"
        )
    engine: Engine = offered[name].load()()
    return engine
