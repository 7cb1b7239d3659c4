"""Tests of the packet filter rules, evaluated in order as by the kernel."""

import ipaddress
import random
import re

import pytest

from orchestrator.agents import load_agent
from orchestrator.engine.docker import rules
from orchestrator.engine.docker.machine_network import MachineNetwork
from orchestrator.engine.egress import allowed_destinations, base_urls, check_runtime
from orchestrator.engine.interface.spec import Egress
from tests.support.errors import raises

GATEWAY = "172.17.0.1"
Place = tuple[str, int | None]


MACHINE = MachineNetwork(gateway=GATEWAY, addresses=("93.184.215.9",), resolvers=("192.168.1.53",))


def guard(*allowed: Place) -> list[str]:
    text = rules.guard_rules(Egress(image="image", allowed=allowed), MACHINE)
    return [line.strip() for line in text.split(";")]


def host(*allowed: Place) -> list[str]:
    egress = Egress(image="image", allowed=allowed)
    text = rules.host_rules("table", "br-1", egress, MACHINE)
    return [line.strip() for line in text.split(";")]


def verdict(lines: list[str], address: str, port: int) -> str | None:
    """Return the verdict of the first rule that matches a new TCP connection to an address."""
    for line in lines:
        wanted = re.fullmatch(
            r"ip daddr (?:{ (.+) }|(\S+))(?: tcp dport (\d+))? (accept|reject)", line
        )
        if wanted is None:
            continue
        networks = (wanted[1] or wanted[2]).split(", ")
        if wanted[3] in (None, str(port)) and any(
            ipaddress.ip_address(address) in ipaddress.ip_network(one) for one in networks
        ):
            return wanted[4]
    return None


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.1", "10.0.0.1", "10.255.255.255", "100.64.0.1", "127.0.0.53", "168.63.129.16",
        "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1",
        "192.88.99.1", "192.168.0.1", "192.168.1.53", "198.18.0.1", "198.51.100.1", "203.0.113.1",
        "224.0.0.251", "239.255.255.250", "240.0.0.1", "255.255.255.255", GATEWAY, "93.184.215.9",
    ],
)  # fmt: skip
def test_host_and_private_networks_are_blocked(address: str) -> None:
    assert verdict(guard(), address, 80) == "reject"


@pytest.mark.parametrize(
    "address", ["9.255.255.255", "11.0.0.1", "172.32.0.1", "93.184.215.10", "168.63.129.17"]
)
def test_public_internet_is_open(address: str) -> None:
    assert verdict(guard(), address, 443) is None
    assert "policy accept" in guard()


def test_all_special_purpose_networks_are_blocked() -> None:
    """Compares random and boundary addresses with Python's list of special-purpose networks."""
    numbers = random.Random(6890)
    closed = [ipaddress.IPv4Network(network) for network in rules.CLOSED]
    edges = [one[at] + step for one in closed for at in (0, -1) for step in (-1, 0, 1)
             if int(one[at]) + step in range(2**32)]  # fmt: skip
    drawn = [ipaddress.IPv4Address(numbers.getrandbits(32)) for _ in range(20_000)]
    special = [one for one in (*edges, *drawn) if not one.is_global or one.is_multicast]
    assert len(special) > 1000
    assert [one for one in special if not any(one in network for network in closed)] == []


def test_allowed_destination_is_open_only_at_its_port() -> None:
    allowed = (("10.1.2.3", 5432), ("host.docker.internal", 8080), ("192.168.7.0/24", None))
    for lines in (guard(*allowed), host(*allowed)):
        assert verdict(lines, "10.1.2.3", 5432) == "accept"
        assert verdict(lines, "10.1.2.3", 22) != "accept"
        assert verdict(lines, "10.1.2.4", 5432) != "accept"
        assert verdict(lines, GATEWAY, 8080) == "accept"
        assert verdict(lines, GATEWAY, 2375) != "accept"
        assert verdict(lines, "192.168.7.9", 1) == "accept"


def test_name_server_is_open_only_at_port_53() -> None:
    for lines in (guard(), host()):
        assert "ip daddr 192.168.1.53 udp dport 53 accept" in lines
        assert "ip daddr 192.168.1.53 tcp dport 53 accept" in lines
    assert verdict(guard(), "192.168.1.53", 80) == "reject"


def test_ipv6_is_blocked() -> None:
    assert "meta nfproto ipv6 reject" in guard()


def test_connection_limit_precedes_all_accept_rules() -> None:
    lines = guard(("10.1.2.3", None))
    first = lines.index("ip daddr 10.1.2.3/32 accept")
    assert lines.index("ct state new ct count over 1000 drop") < first
    assert lines.index("ct state new limit rate over 50/second burst 1000 packets drop") < first


def test_local_flows_are_not_tracked() -> None:
    """Exception: flows to the engine's resolver, whose address is translated, are tracked."""
    text = rules.guard_rules(Egress(image="image"), MACHINE)
    untracked, _, output = text.partition("chain output ")
    assert "type filter hook output priority raw;" in untracked
    assert 'oifname "lo" ip saddr != 127.0.0.11 ip daddr != 127.0.0.11 notrack;' in untracked
    assert 'oifname "lo" meta nfproto ipv6 notrack;' in untracked
    counted = output.index('oifname "lo" ct state new ct count over 4000 drop')
    assert counted < output.index('oifname "lo" accept')


def test_dns_rate_limit_precedes_all_accept_rules() -> None:
    lines = guard()
    slowed = "ip daddr 127.0.0.11 limit rate over 200/second burst 1000 packets drop"
    (place,) = (at for at, line in enumerate(lines) if line.endswith(slowed))
    assert place < lines.index("ct state established,related accept")


def test_host_rules_apply_only_to_the_bridge() -> None:
    lines = host()
    last = "fib daddr type { local, broadcast, multicast, anycast } counter reject with icmpx"
    assert lines.index('iifname != "br-1" accept') < lines.index(f"{last} type admin-prohibited")


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://10.1.2.3", 80), ("https://10.1.2.3/v1", 443), ("http://10.1.2.3:8080/v1", 8080)],
)
def test_a_base_url_opens_one_port(url: str, port: int) -> None:
    assert allowed_destinations((), [url]) == (("10.1.2.3/32", port),)


@pytest.mark.parametrize(
    "url",
    ["postgres://10.1.2.3/x", "postgres://10.1.2.3:5432/x", "10.1.2.3", "//10.1.2.3/", "http://",
     "http://10.1.2.3:0/", "http://10.1.2.3:99999/", "ftp://10.1.2.3", "http://[fd00::1]/"],
)  # fmt: skip
def test_invalid_base_url_opens_nothing(url: str) -> None:
    assert allowed_destinations((), [url]) == ()


@pytest.mark.parametrize(
    ("program", "own"),
    [("shell", None), ("architect", "OPENAI_API_BASE"), ("claude", "ANTHROPIC_BASE_URL"),
     ("gemini", "GOOGLE_GEMINI_BASE_URL"), ("opencode", "OPENAI_BASE_URL"),
     ("aider", "OLLAMA_API_BASE"), ("mini", "LITELLM_PROXY_API_BASE")],
)  # fmt: skip
def test_only_base_urls_of_the_agent_program_open_ports(program: str, own: str | None) -> None:
    others = {
        "DATABASE_URL": "postgres://host.docker.internal/x",
        "CACHE_BASE_URL": "http://host.docker.internal",
        "MY_API_BASE": "http://host.docker.internal",
        "DATABASE_BASE": "http://host.docker.internal",
    }
    environment = {**others, **({own: "http://host.docker.internal:4000"} if own else {})}
    urls = list(base_urls(load_agent(program).inherited_env, environment))
    assert urls == (["http://host.docker.internal:4000"] if own else [])


def test_runtime_with_its_own_network_stack_is_refused() -> None:
    check_runtime(None)
    check_runtime("runc")
    with raises("runtime.no-filter", "crun"):
        check_runtime("runsc")
