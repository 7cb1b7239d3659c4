"""Fixtures with both engines, and functions that start containers."""

import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, RUN
from orchestrator.engine.interface.protocol import ContainerEngine
from tests.support.containers import USER, Run, Starter, finish


@pytest.fixture(
    params=[
        pytest.param("local", marks=pytest.mark.process),
        pytest.param("docker", marks=pytest.mark.docker),
    ]
)
def engine(request: pytest.FixtureRequest) -> ContainerEngine:
    """Return each engine in turn: tests with this fixture apply to all engines."""
    engine: ContainerEngine = request.getfixturevalue(f"{request.param}_engine")
    return engine


@pytest.fixture
def labels(tmp_path: Path) -> Mapping[str, str]:
    """Return labels that no other test's objects have."""
    return {MANAGED: "true", REPOSITORY: str(tmp_path / "repo"), RUN: secrets.token_hex(4)}


def starter(engine: ContainerEngine, labels: Mapping[str, str]) -> Iterator[Starter]:
    yield Starter(engine, labels)
    for leftover in engine.leftovers(labels):
        engine.remove(leftover)
    assert engine.leftovers(labels) == []


@pytest.fixture
def start(engine: ContainerEngine, labels: Mapping[str, str]) -> Iterator[Starter]:
    """Return a function that starts a container of either engine."""
    yield from starter(engine, labels)


@pytest.fixture
def docker_start(docker_engine: DockerEngine, labels: Mapping[str, str]) -> Iterator[Starter]:
    """Return a function that starts a container of the Docker engine."""
    yield from starter(docker_engine, labels)


@pytest.fixture
def run(start: Starter) -> Run:
    """Return a function that runs a container of either engine to its end."""
    return lambda *command, **rest: finish(start(*command, **rest))


@pytest.fixture
def docker_run(docker_start: Starter) -> Run:
    """Return a function that runs a container of the Docker engine to its end."""
    return lambda *command, **rest: finish(docker_start(*command, **rest))


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a directory that the container's user may write to."""
    path = tmp_path / "shared"
    path.mkdir()
    if os.getuid() == 0:
        os.chown(path, USER, USER)
    else:
        path.chmod(0o777)
    return path
