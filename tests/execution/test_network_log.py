"""Tests that no failure of the network log is a failure of the worker, and none is silent."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import EngineError, EngineUnavailableError
from orchestrator.events import Event, Notice
from orchestrator.execution.network_log import NetworkLog
from orchestrator.results import NetworkCounts
from orchestrator.text.redact import Redactor

RAW = b"""\
T {"port": 443, "host": "a.example", "refused": "", "sent": 5, "received": 7}
T {"port": 443, "host": "token-4711.example", "refused": "name", "sent": 1, "received": 0}
"""


class Gateway:
    """A container with a gateway that printed something."""

    def __init__(self, printed: bytes | Exception | None) -> None:
        self._printed = printed

    def network_log(self) -> bytes | None:
        if isinstance(self._printed, Exception):
            raise self._printed
        return self._printed


class Told:
    """A network log, and what it reports."""

    def __init__(self, directory: Path) -> None:
        self.events: list[Event] = []
        self.log = NetworkLog(
            directory=directory,
            worker_id=3,
            emit=self.events.append,
            redactor=Redactor({"TOKEN": b"token-4711"}),
        )

    def add(self, printed: Any) -> None:
        self.log.add(Gateway(printed))  # type: ignore[arg-type]

    def messages(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Notice)]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_counts_cover_all_containers(told: Told) -> None:
    assert told.log.counts() is None
    told.add(None)
    assert told.log.counts() is None
    told.add(b"")
    assert told.log.counts() == NetworkCounts()
    told.add(RAW)
    told.add(RAW)
    assert told.log.counts() == NetworkCounts(allowed=2, refused=2, sent=12, received=14)


def test_secrets_are_in_neither_log_nor_message(told: Told, tmp_path: Path) -> None:
    told.add(RAW)
    assert "token-4711" not in (tmp_path / "network.ndjson").read_text()
    (message,) = told.messages()
    assert message.startswith(
        "worker 3 was refused hosts that are not on its allow-list: `--allow "
    )
    assert "token-4711" not in message


def test_log_that_cannot_be_written_is_reported(told: Told, tmp_path: Path) -> None:
    (tmp_path / "network.ndjson").mkdir()
    told.add(RAW)
    first, _ = told.messages()
    assert first == "worker 3: the network log is incomplete (Is a directory)"
    assert told.log.counts() is None
    assert told.messages()[-1] == "worker 3: the network log cannot be read (Is a directory)"


def test_log_that_the_engine_does_not_give_is_reported(told: Told) -> None:
    told.add(EngineError("cannot read the log"))
    assert told.messages() == ["worker 3: there is no network log (cannot read the log)"]
    with pytest.raises(EngineUnavailableError):
        told.add(EngineUnavailableError("gone"))
