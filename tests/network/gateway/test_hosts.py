"""Entries of an allow-list."""

import pytest

from orchestrator.network.gateway.allowed_host import AllowedHost
from orchestrator.network.gateway.hosts import (
    MOST_HOSTS,
    MOST_PORTS,
    check_hosts,
    host_of_url,
    parse_host,
)
from tests.support.errors import raises


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("a.example.net", AllowedHost(name="a.example.net")),
        ("A.Example.net.", AllowedHost(name="a.example.net")),
        ("a.example.net:8443", AllowedHost(name="a.example.net", port=8443)),
        ("https://a.example.net", AllowedHost(name="a.example.net")),
        ("a.example.net:80", AllowedHost(name="a.example.net", port=80, plain=True)),
        ("http://a.example.net", AllowedHost(name="a.example.net", port=80, plain=True)),
        ("http://a.example.net:3128", AllowedHost(name="a.example.net", port=3128, plain=True)),
        ("*.example.com", AllowedHost(name="example.com", below=True)),
        ("*.example.com:8443", AllowedHost(name="example.com", below=True, port=8443)),
        ("bücher.example", AllowedHost(name="xn--bcher-kva.example")),
        ("a.corp=10.1.0.0/16", AllowedHost(name="a.corp", network="10.1.0.0/16")),
        ("a.corp:81=10.1.2.3", AllowedHost(name="a.corp", port=81, network="10.1.2.3/32")),
        ("http://host.docker.internal:11434",
         AllowedHost(name="host.docker.internal", port=11434, plain=True)),
    ],
)  # fmt: skip
def test_entry_is_parsed(entry: str, expected: AllowedHost) -> None:
    assert parse_host(entry) == expected


@pytest.mark.parametrize(
    "entry",
    [
        "", "*", "*.", "*.com", "com", "localhost", "a..b", "-a.example", "a-.example",
        ".a.example", "a*.example", "*.*.example", "a.example/path", "a.example?x",
        "user@a.example",        "a b.example",
        "a.example\nserver x 1.2.3.4", "a.example;", "a.example }", "a_b.example", "a\u3002com:x",
        # Addresses in every notation.
        "1.2.3.4", "1.2.3.4:443", "0x7f.1", "0x7f000001", "2130706433", "127.1", "[::1]", "::1",
        "a.1", "a.0x1", "10.0.0.0/8",
        "a.example:", "a.example:0", "a.example:65536", "a.example:053", "a.example:53",
        "a.example:443:443", "a.example:٤٤٣", "ftp://a.example", "//a.example", "http://",
        "a.example=", "a.example=10.0.0.1/8", "a.example=0.0.0.0/0", "a.example=11.0.0.0/7",
        "a.example=127.0.0.1", "a.example=169.254.169.254", "a.example=168.63.129.16",
        "a.example=fd00::/8", "host.docker.internal=10.0.0.0/8", "*.host.docker.internal",
        f"{'a' * 64}.example", f"{'a.' * 124}example",
    ],
)  # fmt: skip
def test_invalid_entry_is_refused(entry: str) -> None:
    with raises("allow.invalid") as caught:
        parse_host(entry)
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "entry",
    [
        "https://me:S3cret@a.example", "https://me:S3cret@a.example/b", "S3cret@a.example",
        "https://me:S3c=ret@a.example", "https://me:S3c@ret@a.example", "S3cret://x@a.example",
    ],
)  # fmt: skip
def test_error_of_an_entry_shows_no_password(entry: str) -> None:
    with raises("allow.invalid", "`a.example") as caught:
        parse_host(entry)
    assert "S3c" not in f"{caught.value} {caught.value.hint}"
    assert "ret@" not in str(caught.value)


def test_equal_entries_are_kept_once() -> None:
    hosts = [parse_host(entry) for entry in ("a.example", "A.example:443", "b.example")]
    assert [host.name for host in check_hosts(hosts)] == ["a.example", "b.example"]


def test_port_speaks_either_http_or_tls() -> None:
    hosts = [parse_host("http://a.example:8080"), parse_host("b.example:8080")]
    with raises("allow.protocol", "`a.example`"):
        check_hosts(hosts)


def test_number_of_entries_is_limited() -> None:
    hosts = [AllowedHost(name=f"h{number}.example") for number in range(MOST_HOSTS + 1)]
    assert len(check_hosts(hosts[:-1])) == MOST_HOSTS
    with raises("allow.too-long", MOST_HOSTS):
        check_hosts(hosts)


def test_length_of_all_names_is_limited() -> None:
    hosts = [AllowedHost(name=f"{'a' * 60}.{'b' * 60}.h{number}.example") for number in range(80)]
    with raises("allow.too-long", 10000):
        check_hosts(hosts)


def test_number_of_ports_is_limited() -> None:
    hosts = [AllowedHost(name="a.example", port=1000 + number) for number in range(MOST_PORTS + 1)]
    assert len(check_hosts(hosts[:-1])) == MOST_PORTS
    with raises("allow.too-many-ports", MOST_PORTS):
        check_hosts(hosts)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.example.com/v1", AllowedHost(name="api.example.com")),
        ("http://u:p@llm.corp:8000/v1", AllowedHost(name="llm.corp", port=8000, plain=True)),
        ("redis://cache.example:6379", None),
        ("nonsense", None),
        ("http://[", None),
    ],
)
def test_host_of_a_base_url(url: str, expected: AllowedHost | None) -> None:
    assert host_of_url(url) == expected


@pytest.mark.parametrize("url", ["http://10.0.0.1:8000/v1/key", "http://localhost/key"])
def test_base_url_without_a_name_is_refused(url: str) -> None:
    with raises("api-base.host") as caught:
        host_of_url(url)
    assert "key" not in str(caught.value)
