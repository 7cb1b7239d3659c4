"""What the packet filter of a worker's network lets through, read as the kernel does: in order."""

import ipaddress
import re

import pytest

from orchestrator.egress import check_runtime
from orchestrator.engine.base import Egress
from orchestrator.engine.docker import guard
from orchestrator.errors import UnsupportedError

GATEWAY = "172.17.0.1"


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_resolvers", lambda: iter(["192.168.1.53"]))
    monkeypatch.setattr(guard, "own_addresses", lambda: ["203.0.113.9"])


def verdict(address: str, port: int, *allowed: tuple[str, int | None]) -> str:
    """Give the first rule's word on a new connection by TCP."""
    text = guard.rules(Egress(image="image", allowed=allowed), gateway=GATEWAY)
    for line in text.splitlines():
        if match := re.fullmatch(r" *ip daddr (\S+)(?: tcp dport (\d+))? (accept|reject)", line):
            network, wanted, word = match.groups()
            if ipaddress.ip_address(address) in ipaddress.ip_network(network) and (
                wanted is None or int(wanted) == port
            ):
                return word
    return re.findall(r"policy (\w+)", text)[0]


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.1", "10.0.0.1", "10.255.255.255", "100.64.0.1", "127.0.0.53", "169.254.169.254",
        "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.1.53", "198.18.0.1", "224.0.0.251",
        "239.255.255.250", "240.0.0.1", "255.255.255.255", GATEWAY, "203.0.113.9",
    ],
)  # fmt: skip
def test_the_machine_and_what_is_private_are_closed(address: str) -> None:
    assert verdict(address, 80) == "reject"


@pytest.mark.parametrize("address", ["9.255.255.255", "11.0.0.1", "172.32.0.1", "203.0.113.10"])
def test_the_rest_of_the_internet_is_open(address: str) -> None:
    assert verdict(address, 443) == "accept"


def test_what_is_allowed_is_open_at_its_port_alone() -> None:
    allowed = (("10.1.2.3", 5432), ("host.docker.internal", 8080), ("192.168.7.0/24", None))
    assert verdict("10.1.2.3", 5432, *allowed) == "accept"
    assert verdict("10.1.2.3", 22, *allowed) == "reject"
    assert verdict("10.1.2.4", 5432, *allowed) == "reject"
    assert verdict(GATEWAY, 8080, *allowed) == "accept"
    assert verdict(GATEWAY, 2375, *allowed) == "reject"
    assert verdict("192.168.7.9", 1, *allowed) == "accept"


def test_names_can_be_resolved_and_nothing_else_asked_there() -> None:
    assert verdict("192.168.1.53", 53) == "accept"
    assert verdict("192.168.1.53", 80) == "reject"


def test_what_has_no_rule_of_its_own_is_closed() -> None:
    lines = guard.rules(Egress(image="image", allowed=()), gateway=GATEWAY).splitlines()
    assert "    meta nfproto ipv6 reject" in lines


def test_a_runtime_with_a_network_of_its_own_is_refused() -> None:
    check_runtime(None)
    check_runtime("runc")
    with pytest.raises(UnsupportedError, match="cannot be closed"):
        check_runtime("runsc")
