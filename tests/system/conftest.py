"""What tests of real containers look at the engine with."""

from collections.abc import Iterator

import docker
import pytest


@pytest.fixture
def client() -> Iterator[docker.APIClient]:
    """The daemon, asked beside us."""
    client = docker.APIClient(version="auto")
    yield client
    client.close()
