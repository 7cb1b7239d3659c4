"""A broker that the tests of one file share."""

from collections.abc import Iterator

import pytest

from tests.network.broker.upstream import RunningBroker


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Return a broker that runs."""
    running = RunningBroker(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    running.kill()
