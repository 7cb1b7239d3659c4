"""Record the hosts that a worker reached through its gateway, and the hosts that were refused."""

import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from orchestrator.base.errors import EngineUnavailableError, OrchestratorError
from orchestrator.base.events import Emit, Notice, WorkerConnected
from orchestrator.base.files.tail import end_of
from orchestrator.base.results import NetworkCounts
from orchestrator.base.text.redact import Redactor
from orchestrator.engine.interface.protocol import Container
from orchestrator.network.gateway.hosts import MOST_HOSTS
from orchestrator.network.gateway.log import (
    LogReader,
    NetworkRecord,
    count_records,
    entries_for_learned,
    entries_for_private,
    entries_for_refused,
    read_records,
    refusals_in_words,
)

NETWORK_LOG = "network.ndjson"
_LARGEST = 16 * 1024**2
"""Size in bytes of one worker's network log; once it is reached, further connections are summed up.
"""
_SHOWN = 10
"""Maximum number of hosts that a notice names."""
_MOST_NOTED = 1000
"""Maximum number of hosts that are counted for a notice."""
_PAUSE = 0.5
"""Minimum number of seconds between two events about connections that were allowed."""
_MOST_REFUSED = 20
"""Maximum number of hosts whose first refusal causes an event immediately."""
_LAST = 10.0
"""Maximum number of seconds to wait, after a gateway's end, for the rest of its output."""


@dataclass(frozen=True, kw_only=True)
class NetworkLog:
    """The log of one worker's network connections."""

    directory: Path
    """The worker's state directory."""
    worker_id: int
    emit: Emit
    redactor: Redactor
    lists_all: bool = True
    """Whether a gateway lists every connection. Otherwise, only refused ones are known."""

    def follow(self, container: Container, *, again: bool = False) -> "NetworkFollower":
        """Record the connections of a container in a thread, while it runs.

        Args:
            container: The container.
            again: Whether another process started the container, and recorded its connections so
                far.
        """
        return NetworkFollower(self, container, again=again)

    def counts(self) -> NetworkCounts | None:
        """Return the totals of the log; None if it can have no record, or has none of refusals."""
        path = self.directory / NETWORK_LOG
        try:
            counts = count_records(read_records(path)) if path.exists() else None
            return counts if self.lists_all or (counts and counts.refused) else None
        except OSError as error:
            self.report(f"the network log cannot be read ({error.strerror})")
            return None

    def refusals(self) -> str | None:
        """Return a sentence about the hosts that were refused; None if there are none."""
        with suppress(OSError):
            told = refusals_in_words(read_records(self.directory / NETWORK_LOG))
            return self.redactor.text(told) if told else None
        return None

    def report(self, message: str) -> None:
        """Emit a notice to the user about the worker's network log."""
        self.emit(Notice(message=self.redactor.text(f"worker {self.worker_id}: {message}")))


class NetworkFollower:
    """Records the connections of one container in a thread, until `finish` is called.

    A worker does not fail because its log cannot be read or written.
    """

    def __init__(self, log: NetworkLog, container: Container, *, again: bool) -> None:
        """Start the thread if the container has a gateway."""
        self._log = log
        self._path = log.directory / NETWORK_LOG
        self._container = container
        self._reader = LogReader()
        self._tally = ConnectionTally(log.worker_id)
        self._refused: dict[str, None] = {}
        self._learned: dict[str, None] = {}
        self._private: dict[str, None] = {}
        self._recorded = self._latest = ""
        """Time up to which lines are already recorded and are skipped; time of the latest line."""
        self._problem: str | None = None
        lines = container.network_lines()
        self._thread = threading.Thread(
            target=self._follow, args=(lines,), name=f"network-{log.worker_id}", daemon=True
        )
        if lines is not None:
            if again:
                last = end_of(self._path).rstrip().rpartition(b"\n")[2]
                with suppress(ValidationError):
                    self._recorded = NetworkRecord.model_validate_json(last).time
            try:
                self._path.touch()
            except OSError as error:
                self._problem = error.strerror
            self._thread.start()

    def finish(self) -> None:
        """End the gateway, complete the log, and report refused hosts to the user.

        Must be called after the container's end.

        Raises:
            EngineUnavailableError: The engine does not answer.
        """
        if self._thread.ident is None:
            return
        try:
            self._container.end_network()
        except EngineUnavailableError:
            raise
        except OrchestratorError as error:
            self._problem = self._problem or error.message
        self._thread.join(_LAST)
        for record in self._reader.sums():
            self._write(record, most=math.inf)
        if self._problem is not None:
            self._log.report(f"the network log is incomplete ({self._problem})")
        self._emit(self._tally.rest())
        self._list("was refused hosts that are not on its allow-list", self._refused)
        self._list("was refused hosts at private addresses", self._private)
        self._list("reached hosts that are not on its allow-list", self._learned, MOST_HOSTS)

    def _follow(self, lines: Iterable[bytes] | None) -> None:
        while lines is not None:
            try:
                for line in lines:
                    self._take(line)
            except EngineUnavailableError:
                lines = self._again()
            except OrchestratorError as error:
                self._problem = self._problem or error.message
                return
            else:
                return

    def _again(self) -> Iterable[bytes] | None:
        """Return the gateway's output again, after Docker was unreachable; None if impossible."""
        self._recorded = self._latest
        try:
            again = self._container.again()
            return None if again is None else again.network_lines()
        except OrchestratorError as error:
            self._problem = self._problem or error.message
            return None

    def _take(self, line: bytes) -> None:
        moment = line.partition(b" ")[0].decode("ascii", "replace")
        if moment <= self._recorded:
            return
        self._latest = moment
        record = self._reader.read(line)
        if record is None:
            return
        if not self._write(record, most=_LARGEST):
            self._reader.sum_up(record)
        for found, entries in (
            (self._refused, entries_for_refused((record,))),
            (self._learned, entries_for_learned((record,))),
            (self._private, entries_for_private((record,))),
        ):
            if len(found) < _MOST_NOTED:
                found.update(dict.fromkeys(entries))
        self._emit(self._tally.add(record))

    def _write(self, record: NetworkRecord, *, most: float) -> bool:
        """Append a record to the log; return False if the log has more than `most` bytes."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                if file.tell() > most:
                    return False
                file.write(self._log.redactor.text(record.model_dump_json()) + "\n")
        except OSError as error:
            self._problem = self._problem or error.strerror
        return True

    def _emit(self, event: WorkerConnected | None) -> None:
        if event is not None:
            host = self._log.redactor.text(event.host)
            self._log.emit(event.model_copy(update={"host": host}))

    def _list(self, what: str, entries: Iterable[str], most: int = _SHOWN) -> None:
        found = list(entries)
        if found:
            options = " ".join(f"--allow {entry}" for entry in found[:most])
            more = f" and {len(found) - most} more" if len(found) > most else ""
            message = f"worker {self._log.worker_id} {what}: `{options}`{more}"
            self._log.emit(Notice(message=self._log.redactor.text(message)))


class ConnectionTally:
    """Counts the connections of a worker, and decides for which of them an event is emitted."""

    def __init__(self, worker_id: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with no counted connection."""
        self._worker_id = worker_id
        self._clock = clock
        self._allowed = self._refused = 0
        self._hosts: set[tuple[str, int | None]] = set()
        self._told_at = -_PAUSE
        self._latest: NetworkRecord | None = None
        """The latest connection, unless an event about it was returned."""

    def add(self, record: NetworkRecord) -> WorkerConnected | None:
        """Count a connection; return an event unless the last event was returned a moment ago.

        The first refusal of a host always returns an event, for at most `_MOST_REFUSED` hosts.
        """
        if record.decision == "allowed":
            self._allowed += record.count
        else:
            self._refused += record.count
        self._latest = record
        place = record.host, record.port
        is_new = record.decision == "refused" and place not in self._hosts
        if is_new and len(self._hosts) < _MOST_REFUSED:
            self._hosts.add(place)
            return self.rest()
        return self.rest() if self._clock() - self._told_at >= _PAUSE else None

    def rest(self) -> WorkerConnected | None:
        """Return an event about the latest connection, if it was not reported; else None."""
        record, self._latest = self._latest, None
        if record is None:
            return None
        self._told_at = self._clock()
        return WorkerConnected(
            worker_id=self._worker_id,
            host=record.host,
            port=record.port,
            refused=record.reason if record.decision == "refused" else None,
            connections=self._allowed,
            refusals=self._refused,
        )
