"""Container engines, found by name."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from orchestrator.engine.protocol import ContainerEngine, Engine
from orchestrator.errors import ConfigError


def installed_engines() -> dict[str, EntryPoint]:
    """Return the entry points of all engines that installed packages offer, by name."""
    return {point.name: point for point in entry_points(group="orchestrator.engines")}


def load_engine(name: str) -> Engine:
    """Make the engine of that name.

    Raises:
        ConfigError: No installed package offers it.
        EngineUnavailableError: It cannot be reached.
    """
    offered = installed_engines()
    if name not in offered:
        raise ConfigError(
            f"unknown engine: `{name}`", hint=f"installed engines: {', '.join(sorted(offered))}"
        )
    engine: Engine = offered[name].load()()
    return engine


@contextmanager
def connected(engine: ContainerEngine | None) -> Iterator[ContainerEngine]:
    """Give `engine`, or for a while the Docker engine.

    Raises:
        EngineUnavailableError: It cannot be reached.
    """
    if engine is not None:
        yield engine
        return
    docker = load_engine("docker")
    try:
        yield docker
    finally:
        docker.close()
