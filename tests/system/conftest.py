"""Fixtures for tests with real images."""

from collections.abc import Iterator

import docker
import pytest


@pytest.fixture(params=["mounts", "streams"])
def transfer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let all commands of a test mount the workers' files, or send them to the engine."""
    monkeypatch.setenv("ORCHESTRATOR_TRANSFER", request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def docker_client() -> Iterator[docker.DockerClient]:
    """Return a high-level client of the Docker daemon."""
    client = docker.from_env()
    yield client
    client.close()
