"""Tests of the network that a run's workers share."""

from concurrent.futures import Future
from threading import Event

import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.sandbox.network.run_network import RunNetwork


def closed() -> "Future[str | None]":
    found: Future[str | None] = Future()
    found.set_result(None)
    return found


def test_network_is_removed_when_no_worker_needs_it() -> None:
    removed = Event()
    network = RunNetwork("id", closed(), workers=(1, 2, 3), remove=removed.set)
    for worker in (1, 3, 1, 3):
        network.leave(worker)
    network.wait()
    assert not removed.is_set()
    network.leave(2)
    network.wait()
    assert removed.is_set()


def test_network_is_removed_once_and_only_by_a_worker_that_leaves() -> None:
    count: list[int] = []
    network = RunNetwork("id", closed(), workers=(1, 2), remove=lambda: count.append(1))
    for worker in (2, 4, 1, 1, 2, 4):
        network.leave(worker)
    network.wait()
    assert count == [1]


def test_network_without_a_removal_stays() -> None:
    network = RunNetwork("id", closed(), workers=(1,))
    network.leave(1)
    network.wait()
    assert network.ready() == "id"


def test_network_is_not_given_to_containers_before_it_is_closed() -> None:
    failed: Future[str | None] = Future()
    failed.set_exception(EngineUnavailableError("the engine is gone", key="engine.unreachable"))
    with pytest.raises(EngineUnavailableError, match="gone"):
        RunNetwork("id", failed).ready()
