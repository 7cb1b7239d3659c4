"""The interface of container engines, its implementation for Docker, and the workers' images.

The names in `__all__` are stable: an engine in another package imports nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from orchestrator.engine.counters import Counters
from orchestrator.engine.image_protocol import ImageBuild, ImageEngine, ImageInfo, Progress
from orchestrator.engine.protocol import (
    Container,
    ContainerEngine,
    ContainerState,
    Engine,
    EngineFeatures,
    ExitStatus,
    InnerProcess,
    Leftover,
    LogChunk,
    Measurement,
    PrivateNetwork,
    TerminalSize,
    Usage,
)
from orchestrator.engine.spec import (
    BindMount,
    BrokerLink,
    ContainerSpec,
    Egress,
    OverlayMount,
    TmpfsMount,
)
from orchestrator.errors import (
    ConfigError,
    EngineError,
    EngineUnavailableError,
    ImageBuildError,
    ImageNotFoundError,
    NotRunningError,
    PortTakenError,
    UnsupportedError,
)
from orchestrator.events import Stream
from orchestrator.gateway.allowed_host import AllowedHost

__all__ = [
    "AllowedHost",
    "BindMount",
    "BrokerLink",
    "Container",
    "ContainerEngine",
    "ContainerSpec",
    "ContainerState",
    "Counters",
    "Egress",
    "Engine",
    "EngineError",
    "EngineFeatures",
    "EngineUnavailableError",
    "ExitStatus",
    "ImageBuild",
    "ImageBuildError",
    "ImageEngine",
    "ImageInfo",
    "ImageNotFoundError",
    "InnerProcess",
    "Leftover",
    "LogChunk",
    "Measurement",
    "NotRunningError",
    "OverlayMount",
    "PortTakenError",
    "PrivateNetwork",
    "Progress",
    "Stream",
    "TerminalSize",
    "TmpfsMount",
    "UnsupportedError",
    "Usage",
    "load_engine",
]


def installed_engines() -> dict[str, EntryPoint]:
    """Return the entry points of all installed container engines, by the engine's name."""
    return {point.name: point for point in entry_points(group="orchestrator.engines")}


def load_engine(name: str) -> Engine:
    """Create the container engine that is installed under a name.

    Raises:
        ConfigError: No installed package provides the engine.
        EngineUnavailableError: The engine cannot be reached.
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
    """Yield `engine`, or else a connection to Docker that is closed at the end of the block.

    Raises:
        EngineUnavailableError: The Docker engine cannot be reached.
    """
    if engine is not None:
        yield engine
        return
    docker = load_engine("docker")
    try:
        yield docker
    finally:
        docker.close()
