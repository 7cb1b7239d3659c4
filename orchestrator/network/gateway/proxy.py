"""Write the configuration of `haproxy`, which forwards connections by the requested host name.

TLS is not decrypted: a client sends the host name in plain text (SNI). For plain HTTP, the name is
in the `Host` header. The proxy resolves the name at each connection, checks the address, and
connects to that address.
"""

from collections.abc import Iterator

from orchestrator.network.gateway.allowed_host import BROKER_PORT, DOCKER_HOST, AllowedHost
from orchestrator.network.gateway.hosts import HOST_NAME, LONGEST_NAME
from orchestrator.network.gateway.plan import NAME_SERVER, GatewayPlan

_MOST_WORDS = 40
# The proxy's own HTTP client, which nothing uses, would load all certificate authorities.
_HEAD = """\
global
  maxconn 800
  httpclient.ssl.verify none
  log stdout len 4096 format raw local0
  hard-stop-after 1s
  nbthread 2
defaults
  log global
  timeout connect 10s
  timeout client 1h
  timeout server 1h
  timeout http-request 60s
  option disable-h2-upgrade
resolvers names
  accepted_payload_size 4096
  resolve_retries 2
  timeout resolve 2s
  timeout retry 2s
  hold valid 10s
"""
_LOG = (
    '  log-format "%{{+json}}o %(port)[int({port})] %(scheme)[str({scheme})] '
    "%(host)[var({scope}.name)] %(refused)[var({scope}.why)] %(learned)[var({scope}.new)] "
    '%(sent)U %(received)B"\n'
)
_BACKENDS = """\
backend tls
  mode tcp
  server any 0.0.0.0:0
backend http
  mode http
  option http-no-delay
  http-reuse never
  server any 0.0.0.0:0
"""
_BROKER_GONE = (
    '{"type":"error","error":{"type":"gateway_restarts","message":"gateway: the broker restarts"}}'
)
_TLS = """\
  mode tcp
  tcp-request inspect-delay 10s
  tcp-request content set-var(sess.why) str(not-tls) unless { req.ssl_hello_type 1 } { req.ssl_sni -m found }
  tcp-request content reject if { var(sess.why) -m found }
  tcp-request content set-var(sess.name) req.ssl_sni,lower
"""  # noqa: E501
_HTTP = """\
  mode http
  option http-no-delay
  http-request set-var(txn.name) req.fhdr(host),host_only,lower
  http-request set-var(txn.why) str(invalid-name) unless { req.fhdr_cnt(host) eq 1 }
  http-request set-var(txn.why) str(name) if METH_CONNECT
"""


def proxy_configuration(plan: GatewayPlan) -> str:
    """Return the `haproxy` configuration of one gateway."""
    parts = [_HEAD]
    for number, server in enumerate(plan.resolvers, start=1):
        parts.append(f"  nameserver n{number} {server}:{NAME_SERVER}\n")
    parts += (_frontend(plan, port) for port in plan.host_ports)
    if plan.broker is not None:
        # Model calls are forwarded to the credential broker.
        parts.append(
            f"frontend broker\n  mode http\n  option http-no-delay\n  no log\n"
            f"  bind {plan.address}:{plan.broker_port}\n  default_backend broker\n"
            f"backend broker\n  mode http\n  option http-no-delay\n"
            # A broker that ended is started again within seconds.
            f"  retries 10\n  http-error status 503 content-type application/json hdr Retry-After "
            f"1 string '{_BROKER_GONE}'\n"
            f"  server broker {plan.broker}:{BROKER_PORT}\n"
        )
    for inside, port in plan.published.items():
        # The gateway's port `port` leads to the worker's port `inside`.
        parts.append(
            f"frontend published-{inside}\n  mode tcp\n  no log\n"
            f"  bind 0.0.0.0:{port}\n  default_backend published-{inside}\n"
            f"backend published-{inside}\n  mode tcp\n  retries 0\n"
            f"  server worker {plan.worker}:{inside}\n"
        )
    # HAProxy does not start if the last line does not end.
    return "".join([*parts, _BACKENDS])


def _frontend(plan: GatewayPlan, port: int) -> str:
    hosts = [host for host in plan.hosts if host.port == port]
    is_plain = plan.is_plain(port)
    rules = (_http_rules if is_plain else _tls_rules)(plan, port, hosts)
    lines = "".join(f"  {rule}\n" for rule in rules)
    kind, scheme = ("http", "http") if is_plain else ("tls", "https")
    scope = "txn" if is_plain else "sess"
    return (
        f"frontend {kind}-{port}\n  bind {plan.address}:{port}\n"
        f"{_LOG.format(port=port, scope=scope, scheme=scheme)}"
        f"{_HTTP if is_plain else _TLS}{lines}  default_backend {kind}\n"
    )


def _tls_rules(plan: GatewayPlan, port: int, hosts: list[AllowedHost]) -> Iterator[str]:
    refuse = "tcp-request content reject if { var(sess.why) -m found }"
    for rule in _decisions(plan, port, hosts, "sess", refuse):
        yield rule if rule == refuse else f"tcp-request content {rule}"


def _http_rules(plan: GatewayPlan, port: int, hosts: list[AllowedHost]) -> Iterator[str]:
    refuse = (
        "http-request deny deny_status 403 content-type text/plain "
        'string "gateway: this host is not reachable from the worker\\n" '
        "if { var(txn.why) -m found }"
    )
    for rule in _decisions(plan, port, hosts, "txn", refuse):
        yield rule if rule == refuse else f"http-request {rule}"


def _decisions(
    plan: GatewayPlan, port: int, hosts: list[AllowedHost], scope: str, refuse: str
) -> Iterator[str]:
    """Yield rules that check the requested name, then resolve it, then check the address.

    What is not the name of a host is refused before any other rule, because HAProxy would encode a
    label of 256 characters as the end of another name. A name that is not on the list is never
    resolved, because the query could carry data out; with the network setting `learn`, every name
    is resolved. `scope` is HAProxy's scope of variables: `sess` or `txn`; `refuse` is the rule that
    refuses the request if a check found a reason.
    """
    name, to, why, ok, new = (f"{scope}.{key}" for key in ("name", "to", "why", "ok", "new"))
    is_name = (
        f"{{ var({name}) -m reg '^{HOST_NAME}\\z' }} {{ var({name}) -m len 1:{LONGEST_NAME} }}"
    )
    # protection: only-names-of-hosts-are-resolved
    yield f"set-var({why}) str(invalid-name) unless {is_name}"
    yield refuse
    for host in hosts:
        yield f"set-var({ok}) bool(true) if {_is(host, name)}"
    # protection: only-network-learn-lets-unlisted-names-pass
    if plan.learn:
        yield f"set-var({new}) str(learned) unless {{ var({ok}) -m bool }}"
    else:
        # protection: host-name-is-checked-before-it-is-resolved
        yield f"set-var({why}) str(name) unless {{ var({ok}) -m bool }}"
    yield refuse
    here = [host for host in hosts if host.name == DOCKER_HOST]
    if here:
        yield f"set-var({to}) ipv4({plan.machine}) if {_is(here[0], name)}"
    elsewhere = f" unless {_is(here[0], name)}" if here else ""
    yield f"do-resolve({to},names,ipv4) var({name}){elsewhere}"
    yield f"set-var({why}) str(unresolved) unless {{ var({to}) -m found }}"
    yield refuse
    # protection: resolved-address-is-checked-before-connection
    for part in _parts(plan.not_public):
        yield f"set-var({why}) str(address) if {{ var({to}) -m ip {part} }}"
    for host in hosts:
        if host.network is not None:
            yield f"unset-var({why}) if {_is(host, name)} {{ var({to}) -m ip {host.network} }}"
    for part in _parts(plan.unreachable):
        yield f"set-var({why}) str(address) if {{ var({to}) -m ip {part} }}"
    if here:
        yield f"unset-var({why}) if {_is(here[0], name)}"
    yield refuse
    yield f"set-dst var({to})"
    yield f"set-dst-port int({port})"


def _parts(networks: tuple[str, ...]) -> Iterator[str]:
    """Yield the networks in groups for one line each: HAProxy allows at most 64 words on a line."""
    for start in range(0, len(networks), _MOST_WORDS):
        yield " ".join(networks[start : start + _MOST_WORDS])


def _is(host: AllowedHost, name: str) -> str:
    """Return an `haproxy` condition that is true for connections to an allowed host."""
    if host.below:
        return f"{{ var({name}) -m end .{host.name} }}"
    return f"{{ var({name}) -m str {host.name} }}"
