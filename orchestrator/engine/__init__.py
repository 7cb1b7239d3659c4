"""The container engine interface, Docker behind it, and the images that workers run in.

The names in `__all__` are stable: an engine in another package imports nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from orchestrator.engine.image_protocol import ImageEngine, ImageInfo, Progress
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
    TerminalSize,
    Usage,
)
from orchestrator.engine.spec import BindMount, ContainerSpec, Egress, OverlayMount, TmpfsMount
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

__all__ = [
    "BindMount",
    "Container",
    "ContainerEngine",
    "ContainerSpec",
    "ContainerState",
    "Egress",
    "Engine",
    "EngineError",
    "EngineFeatures",
    "EngineUnavailableError",
    "ExitStatus",
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
    "Progress",
    "Stream",
    "TerminalSize",
    "TmpfsMount",
    "UnsupportedError",
    "Usage",
    "load_engine",
]


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
