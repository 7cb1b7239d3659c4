"""The interface of container engines, its implementation for Docker, and the workers' images.

The names in `__all__` are stable: an engine in another package imports nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from orchestrator.engine.counters import Counters
    from orchestrator.engine.features import EngineFeatures
    from orchestrator.engine.image_protocol import ImageBuild, ImageEngine, ImageInfo, Progress
    from orchestrator.engine.protocol import (
        Container,
        ContainerEngine,
        ContainerState,
        Engine,
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

_HOMES = {
    "engine.counters": ("Counters",),
    "engine.features": ("EngineFeatures",),
    "engine.image_protocol": ("ImageBuild", "ImageEngine", "ImageInfo", "Progress"),
    "engine.protocol": (
        *("Container", "ContainerEngine", "ContainerState", "Engine"),
        *("ExitStatus", "InnerProcess", "Leftover", "LogChunk", "Measurement", "PrivateNetwork"),
        *("TerminalSize", "Usage"),
    ),
    "engine.spec": (
        *("BindMount", "BrokerLink", "ContainerSpec", "Egress", "OverlayMount", "TmpfsMount"),
    ),
    "events": ("Stream",),
    "gateway.allowed_host": ("AllowedHost",),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # what a module's attribute is
    # Loaded on first use: `orchestrator --version` needs the recipes of images, and no model.
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"orchestrator.{module}"), name)
    raise AttributeError(f"module 'orchestrator.engine' has no attribute {name!r}")


def installed_engines() -> "dict[str, EntryPoint]":
    """Return the entry points of all installed container engines, by the engine's name."""
    # Imported here because only this function needs it.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group="orchestrator.engines")}


def load_engine(name: str) -> "Engine":
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
def connected(engine: "ContainerEngine | None") -> "Iterator[ContainerEngine]":
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
