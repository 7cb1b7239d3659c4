"""Tests that no failure of the network log is a failure of the worker, and none is silent."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import EngineError, EngineUnavailableError
from orchestrator.base.events import Event, Notice, WorkerConnected
from orchestrator.base.results import NetworkCounts
from orchestrator.base.text.redact import Redactor
from orchestrator.network.gateway.log import NetworkRecord
from orchestrator.sandbox.network.network_log import ConnectionTally, NetworkLog

ALLOWED = b'1 {"port": 443, "host": "a.example", "refused": "", "sent": 5, "received": 7}'
REFUSED = b"2 dnsmasq: 3 198.18.0.2/40000 config token-4711.example is NXDOMAIN"
LINES = (ALLOWED, REFUSED)
Said = Sequence[bytes | Exception]


class Gateway:
    """A container with a gateway that prints lines, or whose output cannot be read."""

    def __init__(self, said: Said | None, *later: "Gateway", ends: Exception | None = None) -> None:
        self._said = said
        self._later = later
        self._ends = ends

    def network_lines(self) -> Iterator[bytes] | None:
        return None if self._said is None else self._lines(self._said)

    def _lines(self, said: Said) -> Iterator[bytes]:
        for line in said:
            if isinstance(line, Exception):
                raise line
            yield line

    def again(self) -> "Gateway | None":
        return self._later[0] if self._later else None

    def end_network(self) -> None:
        if self._ends is not None:
            raise self._ends


class Told:
    """A network log, and what it reports."""

    def __init__(self, directory: Path) -> None:
        self.events: list[Event] = []
        self.file = directory / "network.ndjson"
        self.log = NetworkLog(
            directory=directory,
            worker_id=3,
            emit=self.events.append,
            redactor=Redactor({"TOKEN": b"token-4711"}),
        )

    def add(self, gateway: Gateway, *, again: bool = False) -> None:
        self.log.follow(gateway, again=again).finish()  # type: ignore[arg-type]

    def messages(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Notice)]

    def hosts(self) -> list[str]:
        return [json.loads(line)["host"] for line in self.file.read_text().splitlines()]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def connection(time: int, host: str = "a.example", **more: Any) -> bytes:
    fields = {"port": 443, "host": host, "refused": "", "sent": 1, "received": 2, **more}
    return f"{time:09} {json.dumps(fields)}".encode()


def test_counts_cover_all_containers(told: Told) -> None:
    assert told.log.counts() is None
    told.add(Gateway(None))
    assert told.log.counts() is None
    told.add(Gateway(()))
    assert told.log.counts() == NetworkCounts()
    told.add(Gateway(LINES))
    told.add(Gateway(LINES))
    assert told.log.counts() == NetworkCounts(allowed=2, refused=2, sent=10, received=14)


def test_connection_is_recorded_while_the_container_runs(told: Told) -> None:
    seen = []

    class Running(Gateway):
        def _lines(self, said: Said) -> Iterator[bytes]:
            for line in super()._lines(said):
                yield line
                # The next line is asked for when this one has been recorded.
                seen.append(told.file.read_text().count("\n"))

    told.add(Running(LINES))
    assert seen == [1, 2]
    events = [event for event in told.events if isinstance(event, WorkerConnected)]
    found = [(event.host, event.port, event.refused, event.connections, event.refusals)
             for event in events]  # fmt: skip
    assert found[0] == ("a.example", 443, None, 1, 0)
    assert found[1] == ("[redacted:TOKEN].example", None, "name", 1, 1)


def test_secrets_are_in_neither_log_nor_message(told: Told) -> None:
    told.add(Gateway(LINES))
    assert "token-4711" not in told.file.read_text()
    (message,) = told.messages()
    assert message.startswith(
        "worker 3 was refused hosts that are not on its allow-list: `--allow "
    )
    assert "token-4711" not in message


def test_resumed_run_records_no_connection_again(told: Told) -> None:
    told.add(Gateway([connection(1, "a.example"), connection(2, "b.example")]))
    lines = [connection(n, f"{name}.example") for n, name in enumerate("abc", start=1)]
    told.add(Gateway(lines), again=True)
    assert told.hosts() == ["a.example", "b.example", "c.example"]


def test_outage_of_the_engine_loses_no_connection(told: Told) -> None:
    lines = [connection(n, f"{name}.example") for n, name in enumerate("abc", start=1)]
    gone = EngineUnavailableError("gone", key="engine.unreachable")
    told.add(Gateway([*lines[:2], gone], Gateway(lines)))
    assert told.hosts() == ["a.example", "b.example", "c.example"]


def test_flood_is_summed_up_exactly(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log stays small, and hides neither later connections nor bytes."""
    monkeypatch.setattr("orchestrator.network.gateway.log.MOST_RECORDS", 20)
    monkeypatch.setattr("orchestrator.network.gateway.log.MOST_SUMS", 5)
    names = [f"0 dnsmasq: 3 x config n{n}.example is NXDOMAIN".encode() for n in range(100)]
    told.add(Gateway([*names, *(connection(n, received=1000) for n in range(1, 51))]))
    # Sums of five hosts, of all other names, and of the connections to all other hosts.
    assert len(told.hosts()) == 20 + 5 + 2
    assert told.log.counts() == NetworkCounts(allowed=50, refused=100, sent=50, received=50_000)


def test_log_has_a_limit(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.sandbox.network.network_log._LARGEST", 1000)
    told.add(Gateway([connection(n) for n in range(100)]))
    assert told.file.stat().st_size < 1500
    assert told.log.counts() == NetworkCounts(allowed=100, refused=0, sent=100, received=200)


def test_log_that_cannot_be_written_is_reported(told: Told) -> None:
    told.file.mkdir()
    told.add(Gateway(LINES))
    first, _ = told.messages()
    assert first == "worker 3: the network log is incomplete (Is a directory)"
    assert told.log.counts() is None
    assert told.messages()[-1] == "worker 3: the network log cannot be read (Is a directory)"


def test_log_that_the_engine_does_not_give_is_reported(told: Told) -> None:
    told.add(Gateway([EngineError("cannot read the log", key="engine.refusal")]))
    assert told.messages() == ["worker 3: the network log is incomplete (cannot read the log)"]
    told.add(Gateway((), ends=EngineError("cannot end it", key="engine.refusal")))
    assert told.messages()[1:] == ["worker 3: the network log is incomplete (cannot end it)"]
    with pytest.raises(EngineUnavailableError):
        told.add(Gateway((), ends=EngineUnavailableError("gone", key="engine.unreachable")))


class TestTally:
    @staticmethod
    def record(host: str, reason: str | None = None) -> NetworkRecord:
        decision = "refused" if reason else "allowed"
        return NetworkRecord.model_validate(
            {"time": "t", "host": host, "port": 443, "decision": decision, "reason": reason}
        )

    def test_connections_are_reported_twice_a_second_and_refused_hosts_at_once(self) -> None:
        now = 10.0
        tally = ConnectionTally(1, clock=lambda: now)
        first = tally.add(self.record("a.example"))
        assert first is not None
        assert tally.add(self.record("b.example")) is None
        refused = tally.add(self.record("c.example", "name"))
        assert refused is not None
        assert (refused.host, refused.refused) == ("c.example", "name")
        assert (refused.connections, refused.refusals) == (2, 1)
        assert tally.add(self.record("c.example", "name")) is None
        now += 0.6
        later = tally.add(self.record("d.example"))
        assert later is not None
        assert (later.connections, later.refusals) == (3, 2)
        assert tally.rest() is None
        assert tally.add(self.record("e.example")) is None
        last = tally.rest()
        assert last is not None
        assert (last.host, last.connections) == ("e.example", 4)

    def test_number_of_hosts_that_are_reported_at_once_is_limited(self) -> None:
        tally = ConnectionTally(1, clock=lambda: 0.0)
        told = [tally.add(self.record(f"h{n}.example", "name")) for n in range(100)]
        assert sum(event is not None for event in told) == 20
