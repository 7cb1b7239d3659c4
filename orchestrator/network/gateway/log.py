"""Parse the output of a gateway's programs: connections, and names that were not resolved."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import NetworkCounts
from orchestrator.base.text.sanitize import one_line
from orchestrator.network.gateway.hosts import parse_host

MOST_RECORDS = 20_000
"""Number of connections of one container that have a record each; further connections are summed
up.
"""
_MOST_TOLD = 5
"""Maximum number of refused hosts in a result's message."""
MOST_SUMS = 1000
"""Maximum number of hosts whose connections are summed up separately after `MOST_RECORDS`."""
_LONGEST_HOST = 253
_NOT_A_NAME = re.compile(r" config (.+) is NXDOMAIN$")
_REVERSE = ".arpa"
Decision = Literal["allowed", "refused"]
LEARNED = "learned"
"""Reason in the record of a connection that only the network `learn` allows."""
_REASONS = ("name", "invalid-name", "address", "unresolved", "not-tls", "not-http")


class NetworkRecord(BaseModel):
    """A connection of a worker, or a host name that it tried to resolve without success.

    After the first `MOST_RECORDS` of a container, one record stands for all connections to a host.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: str
    """Time of the connection's end, or of the end of the latest connection in a sum."""
    host: str
    """Name of the host; empty if the connection had no host name, and for a sum over many hosts."""
    port: int | None = None
    """Port of the connection; null for a name that the worker only tried to resolve."""
    scheme: Literal["https", "http"] | None = None
    """Protocol of the port; null for a name that the worker only tried to resolve."""
    decision: Decision
    reason: str | None = None
    """For a refusal: `name` (the host is not on the list), `invalid-name` (what the worker sent is
    not the full name of a host), `address` (the list does not open the host's address),
    `unresolved` (no name server knows the host), `not-tls` or `not-http` (the connection has no
    host name). For an allowed connection: `learned`, if only the network `learn` opened the host.
    """
    sent: int = Field(default=0, ge=0)
    """Number of bytes that the worker sent."""
    received: int = Field(default=0, ge=0)
    """Number of bytes that the worker received."""
    count: int = Field(default=1, ge=1)
    """Number of connections, or of names, that the record stands for."""


class LogReader:
    """Reads the lines of one gateway's output, and sums up connections beyond `MOST_RECORDS`."""

    def __init__(self) -> None:
        """Start with no line read."""
        self._unknown: set[str] = set()
        self._listed = 0
        self._sums: dict[tuple[object, ...], NetworkRecord] = {}

    def read(self, line: bytes) -> NetworkRecord | None:
        """Return the record in a line; None if there is no record, or if the record is summed up.

        For a host name that the gateway did not resolve, a record is returned only once.

        Args:
            line: Line with a timestamp in front. It may contain any text of a worker.
        """
        time, _, text = line.decode("utf-8", "replace").partition(" ")
        is_connection = text.startswith("{")
        record = _connection(time, text) if is_connection else self._name(time, text)
        if record is None or self._listed < MOST_RECORDS:
            self._listed += record is not None
            return record
        self.sum_up(record)
        return None

    def sum_up(self, record: NetworkRecord) -> None:
        """Add a record to the sums."""
        key = _key(record)
        if key not in self._sums and len(self._sums) >= MOST_SUMS:
            record = record.model_copy(update={"host": "", "port": None, "scheme": None})
            key = _key(record)
        so_far = self._sums.get(key)
        if so_far is not None:
            both = {name: getattr(so_far, name) + getattr(record, name)
                    for name in ("sent", "received", "count")}  # fmt: skip
            record = record.model_copy(update=both)
        self._sums[key] = record

    def sums(self) -> list[NetworkRecord]:
        """Return the sums so far, one record for each host, port, decision and reason."""
        return list(self._sums.values())

    def _name(self, time: str, text: str) -> NetworkRecord | None:
        found = _NOT_A_NAME.search(text)
        host = one_line(found[1].lower(), limit=_LONGEST_HOST) if found else ""
        if not host or host in self._unknown or host.endswith(_REVERSE):
            return None
        if len(self._unknown) < MOST_RECORDS:
            self._unknown.add(host)
        return NetworkRecord(
            time=one_line(time, limit=40), host=host, decision="refused", reason="name"
        )


def _key(record: NetworkRecord) -> tuple[object, ...]:
    return record.host, record.port, record.scheme, record.decision, record.reason


def read_records(path: Path) -> Iterator[NetworkRecord]:
    """Yield the records of a network log on disk; none if there is no such file."""
    try:
        with path.open("rb") as file:
            yield from parse_records(file)
    except FileNotFoundError:
        return


def parse_records(lines: Iterable[bytes]) -> Iterator[NetworkRecord]:
    """Yield the records in lines of a network log; other lines are ignored."""
    for line in lines:
        with suppress(ValidationError):
            yield NetworkRecord.model_validate_json(line)


def count_records(records: Iterable[NetworkRecord]) -> NetworkCounts:
    """Return how many connections were allowed and refused, and their bytes."""
    allowed = refused = sent = received = 0
    for record in records:
        allowed += record.count if record.decision == "allowed" else 0
        refused += record.count if record.decision == "refused" else 0
        sent += record.sent
        received += record.received
    return NetworkCounts(allowed=allowed, refused=refused, sent=sent, received=received)


class HostUse(BaseModel):
    """A worker's connections to one host and port, all of them allowed or all refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    port: int | None
    decision: Decision
    reason: str | None
    count: int
    """Number of connections, or of names that the worker only tried to resolve."""
    sent: int
    received: int
    last: str
    """Time of the latest connection."""


def host_uses(records: Iterable[NetworkRecord]) -> list[HostUse]:
    """Return totals for each host, port, decision and reason, in the order of appearance."""
    groups: dict[tuple[object, ...], list[NetworkRecord]] = {}
    for record in records:
        key = (record.host, record.port, record.decision, record.reason)
        groups.setdefault(key, []).append(record)
    return [
        HostUse(
            **group[0].model_dump(include={"host", "port", "decision", "reason"}),
            count=sum(record.count for record in group),
            sent=sum(record.sent for record in group),
            received=sum(record.received for record in group),
            last=group[-1].time,
        )
        for group in groups.values()
    ]


def entries_for_refused(records: Iterable[NetworkRecord]) -> list[str]:
    """Return allow-list entries for hosts that were refused because they are not on the list."""
    return _entries(record for record in records if record.reason == "name")


def entries_for_learned(records: Iterable[NetworkRecord]) -> list[str]:
    """Return allow-list entries for hosts that only the network setting `learn` allowed."""
    return _entries(record for record in records if record.reason == LEARNED)


def entries_for_private(records: Iterable[NetworkRecord]) -> list[str]:
    """Return allow-list entries for hosts that were refused because of their address."""
    found: list[str] = []
    for record in records:
        if record.reason == "address" and record.scheme:
            # A listed host whose address is private. `NETWORK` is for the user.
            found += [f"{entry}=NETWORK" for entry in _entries((record,))]
        elif record.reason == "address":
            # An address that a worker with an open network was refused.
            found.append(f"{record.host}:{record.port}")
    return found


def refusals_in_words(records: Iterable[NetworkRecord]) -> str | None:
    """Return a sentence with the first hosts that were refused, and what would allow them."""
    found: dict[str, None] = {}
    for record in records:
        if record.decision == "refused" and len(found) < _MOST_TOLD:
            if record.reason == "address":
                place = f"{record.host}:{record.port}"
                found |= {
                    f"{place} at a private address, `--allow {entry}`": None
                    for entry in entries_for_private((record,))
                }
            found |= {
                f"{record.host}, `--allow {entry}`": None
                for entry in entries_for_refused((record,))
            }
    return f"refused: {'; '.join(found)}" if found else None


def _entries(records: Iterable[NetworkRecord]) -> list[str]:
    found: dict[str, None] = {}
    for record in records:
        prefix, usual = ("http://", 80) if record.scheme == "http" else ("", 443)
        port = "" if record.port in (None, usual) else f":{record.port}"
        entry = f"{prefix}{record.host}{port}"
        try:
            parse_host(entry)
        except ConfigError:
            continue
        found[entry] = None
    return list(found)


def _connection(time: str, text: str) -> NetworkRecord | None:
    try:
        fields = json.loads(text)
        refused, scheme = str(fields["refused"]), fields.get("scheme")
        if refused and refused not in _REASONS:
            return None
        if not refused and not fields["host"]:
            # The proxy ended the connection before it could decide about a host.
            refused = "not-http" if scheme == "http" else "not-tls"
        learned = LEARNED if fields.get("learned") == LEARNED else None
        return NetworkRecord(
            time=one_line(time, limit=40),
            host=one_line(str(fields["host"]), limit=_LONGEST_HOST),
            port=int(fields["port"]),
            scheme=scheme if scheme in ("https", "http") else None,
            decision="refused" if refused else "allowed",
            reason=refused or learned,
            sent=int(fields["sent"]),
            received=int(fields["received"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
