"""Read what the programs of a gateway print: connections, and names that are not on the list."""

import json
import re
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.errors import ConfigError
from orchestrator.gateway.hosts import parse_host
from orchestrator.text.sanitize import one_line

MOST_RECORDS = 20_000
"""Records of one gateway."""
_LONGEST_HOST = 253
_NOT_A_NAME = re.compile(r" config (\S+) is NXDOMAIN$")
_REVERSE = ".arpa"
_REASONS = ("name", "address", "unresolved", "not-tls")


class NetworkRecord(BaseModel):
    """A connection of a worker, or a name that it asked for in vain."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: str
    """End of the connection, by the engine's clock."""
    host: str
    """The host by its name; empty if the worker named none."""
    port: int | None = None
    """Null for a name that the worker only asked for."""
    decision: Literal["allowed", "refused"]
    reason: str | None = None
    """Why it was refused: `name` is not on the list, `address` is not reachable by the list,
    `unresolved` by the gateway's name servers, `not-tls` without a host's name.
    """
    sent: int = Field(default=0, ge=0)
    """Bytes from the worker."""
    received: int = Field(default=0, ge=0)
    """Bytes to the worker."""


def read_log(raw: bytes) -> Iterator[NetworkRecord]:
    """Yield the records of a gateway's output; each unknown name once, and at most `MOST_RECORDS`.

    Args:
        raw: Lines, each with a time in front. A worker decides on names and numbers in them.
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


def refused_entries(records: list[NetworkRecord]) -> list[str]:
    """Return entries that would allow what was refused because of its name, in order."""
    found: dict[str, None] = {}
    for record in records:
        if record.reason != "name":
            continue
        entry = record.host if record.port in (None, 443) else f"{record.host}:{record.port}"
        try:
            parse_host(entry)
        except ConfigError:
            continue
        found[entry] = None
    return list(found)


def _connection(time: str, text: str) -> NetworkRecord | None:
    try:
        fields = json.loads(text)
        reason = str(fields["refused"])
        if reason and reason not in _REASONS:
            return None
        return NetworkRecord(
            time=one_line(time, limit=40),
            host=one_line(str(fields["host"]), limit=_LONGEST_HOST),
            port=int(fields["port"]),
            decision="refused" if reason else "allowed",
            reason=reason or None,
            sent=int(fields["sent"]),
            received=int(fields["received"]),
        )
    except (ValueError, KeyError, TypeError):
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
