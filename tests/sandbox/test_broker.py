"""The credential broker in a place with an address of its own, as in a pod."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import PlaceLostError
from orchestrator.base.text.redact import Redactor
from orchestrator.engine.interface.protocol import ContainerState, ExitStatus, LogChunk
from orchestrator.engine.places.host_place import HostPlace
from orchestrator.engine.places.place import PlaceSpec, Start
from orchestrator.network.broker.grant import Grant
from orchestrator.network.broker.ledger import Ledger
from orchestrator.sandbox.sidecars.broker import BrokerFiles, BrokerPlan, RunBroker, address_of
from orchestrator.sandbox.sidecars.broker_address import (
    BrokerNetwork,
    NotedPlace,
    note_network,
    note_place,
    read_network,
    read_place,
)
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine

PORT = 8080


class Step:
    """A container of a broker that runs until its place is lost."""

    def __init__(self, place: "Place") -> None:
        self.id, self.ports, self._place = "1", dict[int, int](), place

    def start(self) -> None:
        pass

    def state(self) -> ContainerState:
        if self._place.is_lost:
            raise PlaceLostError("lost", key="place.lost")
        return ContainerState(started_at=datetime.now(UTC), ended_at=None)

    def logs(self, since: Mapping[str, int] | None = None) -> Iterator[LogChunk]:  # noqa: ARG002
        yield from ()

    def wait(self, timeout: float | None) -> ExitStatus:  # noqa: ARG002
        raise TimeoutError

    def remove(self) -> None:
        pass


class Place:
    """A place that copies the grants when it is asked to."""

    def __init__(self, address: str, memory: Path = Path("/nowhere")) -> None:
        self.spec, self.is_lost, self.grants = None, False, dict[str, str]()
        self._address, self._memory, self._ready = address, memory, ""

    def address(self) -> str:
        return self._address

    def order(self, _step: str, start: Start) -> Any:
        if self.is_lost:
            raise PlaceLostError("lost", key="place.lost")
        *_, listens, self._ready = start.command
        assert listens == self._address
        self.refresh("")
        return Step(self)

    def refresh(self, _step: str) -> None:
        grants = self._memory.glob("*.json")
        self.grants = {path.name: Grant.model_validate_json(path.read_bytes()).ledger
                       for path in grants}  # fmt: skip

    def step(self, _name: str) -> Any:
        return None

    def take(self, _part: str, into: Path, **_: Any) -> int:
        if self.is_lost:
            raise PlaceLostError("lost", key="place.lost")
        (into / "ready").write_text(self._ready)
        return 0

    def remove(self) -> None:
        self.is_lost = True


@pytest.fixture
def files(tmp_path: Path) -> BrokerFiles:
    info = tmp_path.stat()
    for name in ("memory", "state"):
        (tmp_path / name).mkdir()
    return BrokerFiles(
        memory=tmp_path / "memory", state=tmp_path / "state", owner=(info.st_uid, info.st_gid)
    )


@pytest.fixture
def plan(files: BrokerFiles, tmp_path: Path) -> BrokerPlan:
    places = iter([Place("10.0.0.2", files.memory)])  # type: ignore[list-item]
    return BrokerPlan(
        place=Place("10.0.0.1", files.memory),  # type: ignore[arg-type]
        network=None,
        reopen=lambda: next(places),  # type: ignore[arg-type, return-value]
        start=Start(command=("broker",)),
        files=files,
        workers=(1, 2),
        log=tmp_path / "log",
        redactor=Redactor({}),
    )


def admit(broker: RunBroker, worker: int, address: str, attempt: int = 1) -> None:
    grant = Grant(ledger=f"{worker}-{attempt}", token="", upstreams={})
    link = broker.link(worker, port=PORT)
    broker.admit(worker, grant, Place(address), link)  # type: ignore[arg-type]


def test_grant_is_for_the_address_of_the_workers_present_place(plan: BrokerPlan) -> None:
    broker, place = RunBroker(plan), plan.place
    admit(broker, 1, "10.0.1.1")
    admit(broker, 2, "10.0.1.2")
    assert place.grants == {"10.0.1.1.json": "1-1", "10.0.1.2.json": "2-1"}  # type: ignore[attr-defined]
    # Another worker may get the address of a place that is gone.
    admit(broker, 1, "10.0.1.3", attempt=2)
    admit(broker, 2, "10.0.1.1", attempt=2)
    assert place.grants == {"10.0.1.3.json": "1-2", "10.0.1.1.json": "2-2"}  # type: ignore[attr-defined]
    # Also by another process, which knows no addresses.
    RunBroker(plan).dismiss(1)
    assert place.grants == {"10.0.1.1.json": "2-2"}  # type: ignore[attr-defined]


def test_lost_broker_is_replaced_for_workers_that_start_later(plan: BrokerPlan) -> None:
    broker, place = RunBroker(plan), plan.place
    admit(broker, 1, "10.0.1.1")
    old = broker.link(2, port=PORT)
    assert (old.broker, broker.problem(1)) == ("10.0.0.1", None)
    place.is_lost = True  # type: ignore[attr-defined]
    broker.start()
    assert broker.link(2, port=PORT).broker == "10.0.0.2"
    assert "lost with its place" in str(broker.problem(1))
    assert broker.problem(2) is None
    grant = Grant(ledger="2-1", token="", upstreams={})
    with raises("broker.moved"):
        broker.admit(2, grant, Place("10.0.1.2"), old)  # type: ignore[arg-type]
    admit(broker, 1, "10.0.1.3", attempt=2)
    assert broker.problem(1) is None


def test_what_was_spent_before_a_loss_is_known_and_no_final_figure(plan: BrokerPlan) -> None:
    broker = RunBroker(plan)
    ledger = Ledger(plan.files.state / "1-1.ndjson")
    ledger.end(ledger.begin(2.0, 3, "m"), 1.0, 2)
    assert broker.spending("1-1").cost_if_known == 1.0
    plan.place.remove()
    spent = broker.spending("1-1")
    assert (spent.tokens, spent.cost, spent.cost_if_known) == (2, 1.0, None)


def test_place_is_recorded_for_another_process(tmp_path: Path) -> None:
    assert read_place(tmp_path) == NotedPlace(number=1, address="")
    note_place(tmp_path, noted := NotedPlace(number=3, address="10.0.0.1"))
    assert read_place(tmp_path) == noted
    (tmp_path / "broker.json").write_text("[]")
    assert read_place(tmp_path) == NotedPlace(number=1, address="")


def test_place_without_an_address_has_no_broker(local_engine: LocalEngine) -> None:
    spec = PlaceSpec(name="x", labels={}, parts=(), steps=())
    with raises("place.no-address"):
        address_of(HostPlace(local_engine, spec))


def test_link_that_the_broker_left_is_replaced_and_not_followed(tmp_path: Path) -> None:
    state, outside = tmp_path / "state", tmp_path / "outside"
    state.mkdir()
    outside.write_text("kept")
    (state / "network.json").symlink_to(outside)
    network = BrokerNetwork(id="a", subnet=IPv4Network("10.1.0.0/24"))
    note_network(state, network)
    assert read_network(state, {"a"}) == network
    assert outside.read_text() == "kept"
