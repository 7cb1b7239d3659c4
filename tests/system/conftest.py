"""Fixtures for tests with real images."""

from collections.abc import Iterator

import docker
import pytest


@pytest.fixture(scope="session")
def docker_client() -> Iterator[docker.DockerClient]:
    """Return a high-level client of the Docker daemon."""
    client = docker.from_env()
    yield client
    client.close()
