"""Start a container from a short description, and read its output to the end."""

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.protocol import Container, ContainerEngine, ExitStatus
from orchestrator.engine.interface.spec import BindMount, ContainerSpec

USER = 20_001
Run = Callable[..., tuple[ExitStatus, bytes, bytes]]
"""Runs a container to its end, and returns its exit status, stdout and stderr."""


class Starter:
    """Starts containers, and removes them at the end of the test."""

    def __init__(self, engine: ContainerEngine, labels: Mapping[str, str]) -> None:
        self._engine = engine
        self._labels = labels

    def spec(self, *command: str, **rest: Any) -> ContainerSpec:
        described = {
            "name": f"orchestrator-test-{secrets.token_hex(6)}",
            "image": BASE_IMAGE,
            "user": f"{USER}:{USER}",
            "workdir": "/",
            "labels": self._labels,
            **rest,
        }
        return ContainerSpec(command=command, **described)

    def __call__(self, *command: str, **rest: Any) -> Container:
        return self._engine.start(self.spec(*command, **rest))


def finish(container: Container) -> tuple[ExitStatus, bytes, bytes]:
    """Read a container's output to the end; return its exit status, stdout and stderr."""
    said = {"stdout": b"", "stderr": b""}
    for chunk in container.logs():
        said[chunk.stream] += chunk.data
    return container.wait(180), said["stdout"], said["stderr"]


def bind(source: Path, target: str, *, read_only: bool = False) -> BindMount:
    return BindMount(source=source, target=target, read_only=read_only)
