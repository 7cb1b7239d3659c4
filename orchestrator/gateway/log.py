"""Read the output of a gateway's programs: connections, and names that are not on the list."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.errors import ConfigError
from orchestrator.gateway.hosts import parse_host
from orchestrator.results import NetworkCounts
from orchestrator.text.sanitize import one_line

MOST_RECORDS = 20_000
"""Maximum number of records that are read from one gateway's output."""
_LONGEST_HOST = 253
_NOT_A_NAME = re.compile(r" config (\S+) is NXDOMAIN$")
_REVERSE = ".arpa"
Decision = Literal["allowed", "refused"]
LEARNED = "learned"
"""Reason in the record of a connection that only the network `learn` allows."""
_REASONS = ("name", "address", "unresolved", "not-tls")


class NetworkRecord(BaseModel):
    """A connection of a worker, or a host name that it tried to resolve without success."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: str
    """End of the connection, by the engine's clock."""
    host: str
    """Name of the host; empty if the worker gave no name."""
    port: int | None = None
    """Port of the connection; null for a name that the worker only tried to resolve."""
    scheme: Literal["https", "http"] | None = None
    """Protocol of the port; null for a name that the worker only tried to resolve."""
    decision: Decision
    reason: str | None = None
    """For a refusal: `name` is not on the list, `address` is not reachable by the list,
    `unresolved` by the gateway's name servers, `not-tls` without a host's name. For an allowed
    connection: `learned`, if only the network `learn` opened the host.
    """
    sent: int = Field(default=0, ge=0)
    """Number of bytes that the worker sent."""
    received: int = Field(default=0, ge=0)
    """Number of bytes that the worker received."""


def read_log(raw: bytes) -> Iterator[NetworkRecord]:
    """Yield the records in a gateway's output: each unknown name once, at most `MOST_RECORDS`.

    Args:
        raw: Lines, each with a timestamp in front. They may contain any text of a worker.
    """
    unknown: set[str] = set()
    count = 0
    for line in raw.splitlines():
        time, _, text = line.decode("utf-8", "replace").partition(" ")
        record = _connection(time, text) if text.startswith("{") else _name(time, text, unknown)
        if record is None:
            continue
        yield record
        count += 1
        if count == MOST_RECORDS:
            return


def read_records(path: Path) -> Iterator[NetworkRecord]:
    """Yield the records of a network log on disk; none if there is no such file."""
    try:
        with path.open("rb") as file:
            for line in file:
                with suppress(ValidationError):
                    yield NetworkRecord.model_validate_json(line)
    except FileNotFoundError:
        return


def count_records(records: Iterable[NetworkRecord]) -> NetworkCounts:
    """Return how many connections were allowed and refused, and their bytes."""
    allowed = refused = sent = received = 0
    for record in records:
        allowed += record.decision == "allowed"
        refused += record.decision == "refused"
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
    """Number of connections; 1 for a name that the worker only tried to resolve."""
    sent: int
    received: int
    last: str
    """Time of the latest connection."""


def host_uses(records: Iterable[NetworkRecord]) -> list[HostUse]:
    """Return the totals of the records for each host, port and decision, in order."""
    groups: dict[tuple[object, ...], list[NetworkRecord]] = {}
    for record in records:
        key = (record.host, record.port, record.decision, record.reason)
        groups.setdefault(key, []).append(record)
    return [
        HostUse(
            **group[0].model_dump(include={"host", "port", "decision", "reason"}),
            count=len(group),
            sent=sum(record.sent for record in group),
            received=sum(record.received for record in group),
            last=group[-1].time,
        )
        for group in groups.values()
    ]


def refused_entries(records: Iterable[NetworkRecord]) -> list[str]:
    """Return allow-list entries for the hosts that were refused by name, in order."""
    return _entries(record for record in records if record.reason == "name")


def learned_entries(records: Iterable[NetworkRecord]) -> list[str]:
    """Return allow-list entries for the hosts that were reached without being listed, in order."""
    return _entries(record for record in records if record.reason == LEARNED)


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


def _name(time: str, text: str, unknown: set[str]) -> NetworkRecord | None:
    found = _NOT_A_NAME.search(text)
    host = one_line(found[1].lower(), limit=_LONGEST_HOST) if found else ""
    if not host or host in unknown or host.endswith(_REVERSE):
        return None
    unknown.add(host)
    return NetworkRecord(
        time=one_line(time, limit=40), host=host, decision="refused", reason="name"
    )
