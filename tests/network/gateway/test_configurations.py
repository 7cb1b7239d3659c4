"""Configurations of a gateway, as text."""

import pytest

from orchestrator.engine.interface.spec import CLOSED
from orchestrator.network.gateway.dns import dns_configuration
from orchestrator.network.gateway.hosts import parse_host
from orchestrator.network.gateway.packet_filter import Rates, gateway_rules, worker_rules
from orchestrator.network.gateway.plan import GatewayPlan
from orchestrator.network.gateway.proxy import proxy_configuration
from tests.network.gateway.plans import make_plan

RATES = Rates(open=10, per_second=5, burst=20)


def verdicts(rules: str, chain: str) -> list[str]:
    """Return the rules of one chain."""
    lines = rules.splitlines()
    start = lines.index(f"chain {chain} {{")
    return lines[start + 2 : lines.index("}", start)]


def test_worker_sends_to_its_gateway_alone() -> None:
    rules = worker_rules(make_plan("a.example", "b.example:8443"), RATES)
    out = verdicts(rules, "output")
    accepted = [rule for rule in out if rule.endswith("accept")]
    assert accepted == [
        'oifname "lo" accept',
        "ct state established,related accept",
        "ip daddr 198.18.0.3 udp dport 53 accept",
        "ip daddr 198.18.0.3 tcp dport { 53, 443, 8443 } accept",
    ]
    assert out[0] == "ip daddr 127.0.0.11 reject with icmpx type admin-prohibited"
    assert out[-1] == "reject with icmpx type admin-prohibited"
    assert "policy drop;" in rules.split("chain output", 1)[1]


def test_gateway_forwards_nothing_and_serves_its_worker_alone() -> None:
    rules = gateway_rules(make_plan("a.example"), RATES)
    assert verdicts(rules, "forward") == []
    assert rules.count("policy drop;") == 3
    assert [rule for rule in verdicts(rules, "input") if rule.endswith("accept")] == [
        'iifname "lo" accept',
        "ct state established,related accept",
        "ip saddr 198.18.0.2 ip daddr 198.18.0.3 udp dport 53 accept",
        "ip saddr 198.18.0.2 ip daddr 198.18.0.3 tcp dport { 53, 443 } accept",
    ]
    assert "fib saddr . iif oif missing drop" in verdicts(rules, "input")


def test_queries_of_a_worker_are_limited_before_any_packet_is_accepted() -> None:
    came_in = verdicts(gateway_rules(make_plan("a.example"), RATES), "input")
    assert came_in[:2] == [
        'iifname "lo" accept',
        "ip saddr 198.18.0.2 meta l4proto { tcp, udp } th dport 53 "
        "limit rate over 32 kbytes/second burst 512 kbytes drop",
    ]


@pytest.mark.parametrize("network", CLOSED)
def test_rules_and_proxy_close_every_special_network(network: str) -> None:
    plan = make_plan("a.example")
    wanted = network if network in plan.not_public else "224.0.0.0/3"
    out = verdicts(gateway_rules(plan, RATES), "output")
    closing = next(at for at, rule in enumerate(out) if wanted in rule.split("}")[0].split(", ")[0]
                   or f", {wanted}" in rule)  # fmt: skip
    opening = out.index("tcp dport { 443 } accept")
    assert closing < opening
    assert wanted in proxy_configuration(plan)


def test_own_addresses_of_the_machine_are_closed_before_a_network_is_opened() -> None:
    plan = make_plan("a.example=44.0.0.0/24", own=("44.0.0.7",))
    out = verdicts(gateway_rules(plan, RATES), "output")
    never = next(at for at, rule in enumerate(out) if "44.0.0.7/32" in rule)
    assert never < out.index("ip daddr 44.0.0.0/24 tcp dport 443 accept")


def test_nothing_but_the_programs_of_the_gateway_connects() -> None:
    out = verdicts(gateway_rules(make_plan("a.example"), RATES), "output")
    first = next(at for at, rule in enumerate(out) if "dport" in rule)
    assert any("meta skuid != 13" in rule for rule in out[:first])


def test_published_ports_are_for_clients_that_the_engine_forwards() -> None:
    rules = gateway_rules(make_plan(published={3000: 20010, 443: 20011}), RATES)
    assert [rule for rule in verdicts(rules, "input") if rule.endswith("accept")] == [
        'iifname "lo" accept',
        "ct state established,related accept",
        "ip saddr 172.18.0.1 tcp dport { 20010, 20011 } accept",
        "ip saddr 198.18.0.2 ip daddr 198.18.0.3 udp dport 53 accept",
        "ip saddr 198.18.0.2 ip daddr 198.18.0.3 tcp dport { 53 } accept",
    ]
    assert [rule for rule in verdicts(rules, "output") if rule.endswith("accept")] == [
        'oifname "lo" accept',
        "ct state established,related accept",
        "ip daddr 198.18.0.2 tcp dport { 3000, 443 } accept",
        "ip daddr 203.0.113.53 udp dport 53 accept",
        "ip daddr 203.0.113.53 tcp dport 53 accept",
    ]
    without = worker_rules(make_plan(published={3000: 20010}), RATES)
    assert without == worker_rules(make_plan(), RATES)


def test_names_that_are_not_listed_do_not_exist() -> None:
    lines = dns_configuration(make_plan("a.example", "a.example:80", "*.b.example")).splitlines()
    assert lines.count("host-record=a.example,198.18.0.3") == 1
    assert "address=/*.b.example/198.18.0.3" in lines
    assert {"no-resolv", "no-hosts", "local=/#/"} <= set(lines)
    assert not any(line.startswith("server") for line in lines)


def frontends(plan: GatewayPlan) -> dict[str, list[str]]:
    """Return the lines of each frontend of the proxy."""
    found: dict[str, list[str]] = {}
    for line in proxy_configuration(plan).splitlines():
        if not line.startswith(" "):
            found[line] = current = []
        else:
            current.append(line.strip())
    return {name: lines for name, lines in found.items() if name.startswith("frontend")}


@pytest.mark.parametrize("entry", ["a.example", "http://a.example", "http://a.example:8080"])
def test_name_is_checked_before_it_is_resolved_and_the_address_before_it_is_used(
    entry: str,
) -> None:
    (lines,) = frontends(make_plan(entry)).values()
    order = [
        next(at for at, line in enumerate(lines) if part in line)
        for part in ("str(invalid-name) unless { var", "str(name) unless { var", "do-resolve",
                     "str(unresolved)", "str(address)", "set-dst var")
    ]  # fmt: skip
    assert order == sorted(order)
    refusals = [at for at, line in enumerate(lines) if "reject if" in line or "deny deny" in line]
    assert all(any(first < at < then for at in refusals)
               for first, then in (order[:2], order[1:3], order[4:]))  # fmt: skip


def test_each_port_has_its_own_hosts() -> None:
    found = frontends(make_plan("a.example", "b.example:8443", "http://c.example:8080"))
    assert list(found) == ["frontend tls-443", "frontend http-8080", "frontend tls-8443"]
    named = {
        name: {word for line in lines for word in line.split() if word.endswith(".example")}
        for name, lines in found.items()
    }
    assert list(named.values()) == [{"a.example"}, {"c.example"}, {"b.example"}]


def test_lines_of_the_proxy_fit_its_limits_with_many_addresses() -> None:
    own = tuple(f"8.{a}.{b}.1" for a in range(10) for b in range(10))
    plan = make_plan(*(f"h{n}.example=10.{n}.0.0/16" for n in range(200)), own=own)
    lines = proxy_configuration(plan).splitlines()
    assert max(len(line) for line in lines) < 2048
    assert max(len(line.split()) for line in lines) <= 64
    assert all(address in proxy_configuration(plan) for address in own)


def test_parsed_entries_are_what_the_plan_holds() -> None:
    assert make_plan("a.example").hosts == (parse_host("a.example"),)


def test_gateway_that_learns_checks_addresses_but_no_names() -> None:
    plan = make_plan("http://a.example:8080", "b.corp=10.0.0.0/8", learn=True)
    found = frontends(plan)
    assert list(found) == ["frontend http-80", "frontend tls-443", "frontend http-8080"]
    for lines in found.values():
        checks = [at for at, line in enumerate(lines) if "str(address)" in line]
        used = next(at for at, line in enumerate(lines) if "set-dst var" in line)
        assert checks
        assert max(checks) < used
        assert not any("str(name) unless { var" in line for line in lines)
        assert any("str(learned) unless { var" in line for line in lines)
    opened = [line for line in found["frontend tls-443"] if "unset-var" in line]
    assert [line.split("{")[1].split()[-2] for line in opened] == ["b.corp"]
    out = verdicts(gateway_rules(plan, RATES), "output")
    assert "tcp dport { 80, 443, 8080 } accept" in out
    assert any("10.0.0.0/8" in rule and "reject" in rule for rule in out)


def test_gateway_that_learns_forwards_no_query() -> None:
    lines = dns_configuration(make_plan("a.example", learn=True)).splitlines()
    assert "address=/#/198.18.0.3" in lines
    assert {"no-resolv", "no-hosts", "local=/#/"} <= set(lines)
    assert not any(line.startswith("server") for line in lines)
