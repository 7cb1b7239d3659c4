"""Output of a gateway, which a worker influences."""

import json

import pytest

from orchestrator.network.gateway.log import (
    LogReader,
    NetworkRecord,
    entries_for_learned,
    entries_for_refused,
)

TIME = "2026-01-02T03:04:05.000000006Z"


def connection(**fields: object) -> str:
    known = {"port": 443, "host": "a.example", "refused": "", "sent": 5, "received": 7}
    return f"{TIME} {json.dumps({**known, **fields})}"


def unknown(name: str) -> str:
    return f"{TIME} dnsmasq: 3 198.18.0.2/40000 config {name} is NXDOMAIN"


def records(*lines: str) -> list[NetworkRecord]:
    reader = LogReader()
    return [record for line in lines if (record := reader.read(line.encode())) is not None]


def test_connections_and_unknown_names_are_records() -> None:
    found = records(
        connection(), connection(refused="address"), unknown("B.example"), unknown("b.example")
    )
    assert [(one.host, one.port, one.decision, one.reason, one.sent) for one in found] == [
        ("a.example", 443, "allowed", None, 5),
        ("a.example", 443, "refused", "address", 5),
        ("b.example", None, "refused", "name", 0),
    ]
    assert {one.time for one in found} == {TIME}


@pytest.mark.parametrize(
    "line",
    [
        "", "x", TIME, f"{TIME} {{", f"{TIME} {{}}", f"{TIME} []", connection(port="x"),
        connection(sent=-1), connection(sent=None), connection(refused="because"),
        connection(refused=["name"]), unknown("1.0.0.10.in-addr.arpa"),
        f"{TIME} dnsmasq: 3 198.18.0.2/40000 query[A] b.example from 198.18.0.2",
        f"{TIME} [WARNING] (9) : config : nothing", f"{TIME} {{{'[' * 100_000}",
        f'{TIME} {{"port": {"[" * 100_000}', connection().replace("443", "1e999"),
        connection().replace("443", "9" * 5000),
    ],
)  # fmt: skip
def test_other_lines_are_no_records(line: str) -> None:
    assert records(line) == []


@pytest.mark.parametrize("name", ["a b.example", '"{config x is nxdomain', "<name unprintable>"])
def test_hostile_names_are_records_too(name: str) -> None:
    (found,) = records(unknown(name), unknown(name))
    assert (found.host, found.reason) == (name, "name")


def test_connection_without_a_host_is_refused() -> None:
    found = records(connection(host="", scheme="http"), connection(host="", scheme="https"))
    assert [(one.decision, one.reason) for one in found] == [
        ("refused", "not-http"), ("refused", "not-tls"),
    ]  # fmt: skip


def test_names_are_cleaned_and_shortened() -> None:
    hostile = "\x1b[31m\u202e\n" + "x" * 10_000
    (found,) = records(connection(host=hostile))
    assert len(found.host) <= 253
    assert "\x1b" not in found.host
    assert "\n" not in found.model_dump_json()


def test_refused_names_become_entries() -> None:
    found = records(
        connection(), connection(host="b.example", refused="name"), unknown("c.example"),
        connection(host="d.example", port=8443, refused="name"), unknown("c.example"),
        connection(host="e.example", refused="address"), connection(host="", refused="not-tls"),
        connection(host="1.2.3.4", refused="name"), unknown("x`;rm.example"), unknown("localhost"),
    )  # fmt: skip
    assert entries_for_refused(found) == ["b.example", "c.example", "d.example:8443"]


def test_learned_hosts_become_entries() -> None:
    found = records(
        connection(), connection(host="b.example", learned="learned", scheme="https"),
        connection(host="c.example", port=80, learned="learned", scheme="http"),
        connection(host="d.example", port=8080, learned="learned", scheme="http"),
        connection(host="b.example", learned="learned"), connection(host="x", learned="learned"),
        connection(host="e.example", refused="address", learned="learned"),
        connection(host="f.example", learned="other", scheme="ftp"),
    )  # fmt: skip
    assert entries_for_learned(found) == ["b.example", "http://c.example", "http://d.example:8080"]
    assert entries_for_refused(found) == []
    assert [one.reason for one in found[-2:]] == ["address", None]
    assert found[-1].scheme is None


def test_refused_hosts_without_tls_become_entries() -> None:
    found = records(connection(host="d.example", port=8080, refused="name", scheme="http"))
    assert entries_for_refused(found) == ["http://d.example:8080"]
