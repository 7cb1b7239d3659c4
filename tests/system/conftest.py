"""What tests of images share."""

from collections.abc import Iterator

import docker
import pytest


@pytest.fixture(scope="session")
def docker_client() -> Iterator[docker.DockerClient]:
    """The daemon's images and containers as objects of the SDK."""
    client = docker.from_env()
    yield client
    client.close()
