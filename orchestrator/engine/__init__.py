"""The interface of container engines, its implementation for Docker, and the workers' images.

The names in `__all__` are stable: an engine in another package imports nothing else.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.base.errors import (
    ConfigError,
    EngineError,
    EngineUnavailableError,
    ImageBuildError,
    ImageNotFoundError,
    NotRunningError,
    OrchestratorError,
    PortTakenError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from orchestrator.base.events import Stream
    from orchestrator.engine.interface.counters import Counters
    from orchestrator.engine.interface.features import EngineFeatures
    from orchestrator.engine.interface.image_protocol import (
        ImageBuild,
        ImageEngine,
        ImageInfo,
        Progress,
    )
    from orchestrator.engine.interface.protocol import (
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
    from orchestrator.engine.interface.run_engine import RunEngine
    from orchestrator.engine.interface.spec import (
        BindMount,
        BrokerLink,
        ContainerSpec,
        Egress,
        OverlayMount,
        TmpfsMount,
    )
    from orchestrator.network.gateway.allowed_host import AllowedHost

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
    "engine.interface.counters": ("Counters",),
    "engine.interface.features": ("EngineFeatures",),
    "engine.interface.image_protocol": ("ImageBuild", "ImageEngine", "ImageInfo", "Progress"),
    "engine.interface.protocol": (
        *("Container", "ContainerEngine", "ContainerState", "Engine"),
        *("ExitStatus", "InnerProcess", "Leftover", "LogChunk", "Measurement", "PrivateNetwork"),
        *("TerminalSize", "Usage"),
    ),
    "engine.interface.spec": (
        *("BindMount", "BrokerLink", "ContainerSpec", "Egress", "OverlayMount", "TmpfsMount"),
    ),
    "base.events": ("Stream",),
    "network.gateway.allowed_host": ("AllowedHost",),
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


def load_engine(name: str, address: str = "") -> "Engine":
    """Create the container engine that is installed under a name.

    Args:
        name: Name of its entry point.
        address: Where to reach it. Default: the engine that the user chose.

    Raises:
        ConfigError: No installed package provides the engine.
        EngineUnavailableError: The engine cannot be reached.
    """
    offered = installed_engines()
    if name not in offered:
        raise ConfigError(
            f"unknown engine: `{name}`",
            key="engine.unknown",
            hint=f"installed engines: {', '.join(sorted(offered))}",
        )
    try:
        create = offered[name].load()
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the engine `{name}` needs the Python package `{error.name}`, which is not installed",
            key="engine.needs-package",
            hint=f"pip install 'worktree-orchestrator[{name}]'",
        ) from error
    engine: Engine = create(address) if address else create()
    return engine


def engine_of_run(used: "RunEngine | None") -> "Engine":
    """Connect to the engine of a recorded run: at the recorded address, else at the user's.

    Args:
        used: The record. None for a run of an older version, which used Docker.

    Raises:
        ConfigError: The engines at these addresses are others.
        EngineUnavailableError: No engine can be reached.
    """
    # An engine that no package provides was an object of a Python program.
    if used is None or used.kind not in installed_engines():
        return load_engine("docker")
    problem: OrchestratorError | None = None
    for address in dict.fromkeys((used.address, "")):
        try:
            engine = load_engine(used.kind, address)
        except (EngineUnavailableError, UnsupportedError) as error:
            # For example, the certificates for the recorded address are those of no context.
            problem = problem or error
            continue
        try:
            # protection: another-engine-than-that-of-run-is-refused
            if used.is_same(engine.name, engine.check(images=(), runtime=None).id):
                return engine
        except BaseException:
            engine.close()
            raise
        engine.close()
        problem = ConfigError(
            f"the run was started with another engine: {used.version} at `{used.address}`",
            key="engine.other",
            # A namespace that was created again has another identifier.
            hint="choose its context with `kubectl config use-context NAME`; if its namespace was "
            "deleted, its pods are gone, even if there is a new one"
            if used.kind == "kubernetes"
            else "set `DOCKER_HOST` to the address of that engine",
        )
    raise problem or EngineUnavailableError("no engine can be reached", key="engine.unreachable")


_shared: "dict[tuple[str, ...], tuple[Engine, int]]" = {}
_sharing = threading.Lock()


@contextmanager
def shared_engine(engine: "ContainerEngine | str") -> "Iterator[ContainerEngine]":
    """Yield an engine, or the connection that all users of this process have to one with a name.

    The connection is closed at the end of its last user's block.

    Args:
        engine: The engine, or the name of an installed one.

    Raises:
        ConfigError: No installed package provides the engine.
        EngineUnavailableError: The engine cannot be reached.
    """
    if not isinstance(engine, str):
        yield engine
        return
    # Another address may be another engine.
    chosen = (f"{name}={value}" for name, value in os.environ.items() if name.startswith("DOCKER_"))
    key = (engine, *sorted(chosen))
    with _sharing:
        found, users = _shared.get(key) or (load_engine(engine), 0)
        _shared[key] = (found, users + 1)
    try:
        yield found
    finally:
        with _sharing:
            _, users = _shared.pop(key)
            if users > 1:
                _shared[key] = (found, users - 1)
        if users == 1:
            found.close()


@contextmanager
def connected(
    engine: "ContainerEngine | None", used: "RunEngine | None" = None, *, name: str = "docker"
) -> "Iterator[ContainerEngine]":
    """Yield `engine`, or else a connection to another one that is closed at the end of the block.

    Args:
        engine: The engine.
        used: The engine of the recorded run that the block is about.
        name: Name of the engine, if there is neither.

    Raises:
        ConfigError: No installed package provides the engine.
        EngineUnavailableError: The engine cannot be reached.
    """
    if engine is not None:
        yield engine
        return
    found = load_engine(name) if used is None else engine_of_run(used)
    try:
        yield found
    finally:
        found.close()
