"""Decide which network destinations a worker may reach: hosts of `--allow`, and model APIs."""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

from orchestrator.base.errors import ConfigError, UnsupportedError
from orchestrator.base.text.split_lines import split_lines
from orchestrator.config.network_access import Access, accesses_with_network, stage_access
from orchestrator.config.settings.company import Company
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.spec import Egress
from orchestrator.engine.places.place import RemoteEngine
from orchestrator.network.gateway.allowed_host import DOCKER_HOST as HOST
from orchestrator.network.gateway.allowed_host import AllowedHost
from orchestrator.network.gateway.host_sets import SIGN, HostSets
from orchestrator.network.gateway.hosts import check_hosts, host_of_url
from orchestrator.network.gateway.package_managers import FoundUrl, Machine
from orchestrator.repository.repository import Repository

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_PORTS = {"http": 80, "https": 443}
_BASE_URLS = ("_API_BASE", "_BASE_URL")
"""Endings of the names of variables that hold the base URL of a model's API."""

# Runtimes that use the kernel's network stack. Others (gVisor, Kata) may have their own stack, on
# which packet filter rules in the container's network namespace have no effect.
_FILTERED = frozenset({"runc", "crun", "youki", "nvidia", "io.containerd.runc.v2"})

Destination = tuple[str, int | None]
Resolve = Callable[[str], Sequence[str]]
"""Function that returns the IPv4 addresses of a name; raises `OSError` or `ValueError`."""


def resolve_here(name: str) -> list[str]:
    """Return the IPv4 addresses of a name, as this machine resolves it.

    Raises:
        OSError: The name has no address.
    """
    answers = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    return sorted({str(answer[4][0]) for answer in answers})


def resolver_of(engine: ContainerEngine) -> Resolve:
    """Return the function that resolves names as the machine of an engine does."""
    if isinstance(engine, RemoteEngine) and not engine.is_here:
        return engine.resolve
    return resolve_here


def check_runtime(runtime: str | None, *, without: str = "`--network none`") -> None:
    """Reject an OCI runtime whose containers cannot be blocked from reaching the host.

    Raises:
        UnsupportedError: The runtime may have its own network stack, which packet filters do not
            see.
    """
    if has_own_kernel(runtime):
        raise UnsupportedError(
            f"runtime `{runtime}` is not supported with a network: the packet filter is known to "
            f"work only with {', '.join(sorted(_FILTERED))}",
            key="runtime.no-filter",
            hint=f"use {without}; `orchestrator doctor` lists the engine's runtimes",
        )


def has_own_kernel(runtime: str | None) -> bool:
    """Return whether the containers of an OCI runtime may not use the machine's kernel."""
    # protection: runtime-with-its-own-network-stack-refused
    return runtime is not None and runtime not in _FILTERED


def check_shared_network(runtime: str | None) -> None:
    """Reject services with an OCI runtime whose containers cannot share a network.

    Raises:
        UnsupportedError: Each container would have its own network stack.
    """
    if has_own_kernel(runtime):
        raise UnsupportedError(
            f"with runtime `{runtime}`, a worker cannot share a network with its services",
            key="runtime.services",
            hint="remove either `runtime` or the services",
        )


def check_allow(configs: Sequence[ParallelConfig]) -> None:
    """Check that allowed hosts are only given where a worker has a network.

    Args:
        configs: The settings of the run, or of each of its tasks.

    Raises:
        ConfigError: Hosts are allowed, but no worker could reach them.
    """
    allowed = any(config.isolation.allow for config in configs)
    if allowed and all(config.networks == {"none"} for config in configs):
        raise ConfigError(
            "`--allow` names a host, but no worker has a network: `network` is `none`",
            key="allow.no-network",
            hint="remove `--allow`, or use `--network allowlist` or `--network open`",
        )
    for config in configs:
        proxied = Company.parse(config.isolation.company).has_proxy
        if proxied and "open" not in config.networks and config.networks != {"none"}:
            raise ConfigError(
                "`--company proxy=` needs `--network open`: a proxy would connect workers to hosts "
                "that are not on their list",
                key="company.proxy",
                hint="with an allow-list, use `--company pip=URL` and the like for mirrors; the "
                "gateway connects directly",
            )
    stages = [(config.isolation, stage_access(config)) for config in configs]
    _check_stage("setup", [access.setup for ours, access in stages if ours.setup_allow])
    _check_stage("check", [access.checks for ours, access in stages if ours.check_allow])


def _check_stage(stage: str, found: Sequence[Access]) -> None:
    if found and all(access.network == "none" for access in found):
        raise ConfigError(
            f"`--{stage}-allow` names a host, but `{stage}_network` is `none`",
            key="allow.no-network",
            hint=f"remove `--{stage}-allow`, or use `--{stage}-network allowlist`",
        )


def host_sets(
    own: Mapping[str, tuple[str, ...]], repository: Repository, environ: Mapping[str, str]
) -> HostSets:
    """Return the sets that allow-lists may name.

    Args:
        own: The sets of a configuration file.
        repository: The repository, whose remotes are the set `git`.
        environ: The caller's environment variables.
    """

    def remotes() -> Iterator[FoundUrl]:
        for line in split_lines(repository.git.text("remote", "--verbose")):
            name, _, rest = line.partition("\t")
            yield FoundUrl(rest.rpartition(" ")[0], f"remote {name}")

    return HostSets(own=own, machine=Machine(environ=environ), remotes=remotes)


def worker_egress(
    config: ParallelConfig,
    names: Iterable[str],
    inherited_env: Mapping[str, str],
    sets: HostSets | None = None,
    resolve: Resolve = resolve_here,
) -> dict[Access, Egress]:
    """Return the destinations that a worker's containers may reach, by network and allow-list.

    Args:
        config: The settings of the worker.
        names: Environment variables that the worker's agent program is known to read.
        inherited_env: Environment variables of the caller that the agent program gets.
        sets: Sets of hosts that allow-lists may name.
        resolve: Resolves names as the engine's machine does.

    Raises:
        UnsupportedError: Containers of the OCI runtime cannot be blocked from reaching the host.
        ConfigError: An allowed host is invalid or cannot be resolved.
    """
    accesses, ports = accesses_with_network(config), config.isolation.ports
    found = stage_access(config)
    sets = sets or HostSets(own=config.isolation.allow_sets)
    uses_broker = config.isolation.keys == "broker"
    if uses_broker or ports:
        # Even without a network, the worker is connected to the broker, or to its clients.
        accesses = tuple(dict.fromkeys((*accesses, found.task)))
    if found.setup_reads:
        accesses = tuple(dict.fromkeys((*accesses, found.setup)))
    if not accesses:
        return {}
    others = [*(["`--keys env`"] if uses_broker else ()), *(["no ports"] if ports else ())]
    instead = f"{' and '.join(others)} with `--network none`" if others else "`--network none`"
    check_runtime(config.isolation.runtime, without=instead)
    given = {**inherited_env, **config.isolation.env}
    # The broker connects to the models' APIs, and the workers only to the broker.
    urls = [] if uses_broker else list(base_urls(names, given))
    if config.api_base is not None and not uses_broker:
        urls.append(config.api_base)
    company = Company.parse(config.isolation.company)
    found_egress = {}
    for access in accesses:
        own = company.urls(given, is_open=access.network == "open")
        found_egress[access] = egress_of(
            access, sets=sets, resolve=resolve, urls=urls, company=own, may_be_empty=uses_broker
        )
    return found_egress


def egress_of(
    access: Access,
    *,
    sets: HostSets,
    resolve: Resolve,
    urls: Sequence[str] = (),
    company: Sequence[str] = (),
    may_be_empty: bool = False,
) -> Egress:
    """Return the destinations that containers with a network and an allow-list may reach.

    Args:
        access: The network and the list.
        sets: Sets of hosts that the list may name.
        resolve: Resolves names as the engine's machine does.
        urls: URLs of models' APIs, which are reached as well.
        company: URLs of a company's mirrors, which are reached as well.
        may_be_empty: Whether containers may have an allow-list without a host.

    Raises:
        ConfigError: An allowed host is invalid or cannot be resolved, or there is none.
    """
    # protection: no-network-stays-no-network
    if access.network == "none":
        # Entries of the list are for stages that have a network.
        return Egress(image=BASE_IMAGE, hosts=())
    if access.network == "open":
        return Egress(
            image=BASE_IMAGE, allowed=allowed_destinations(access.allow, (*urls, *company), resolve)
        )
    found = filter(None, map(host_of_url, urls))
    learn = access.network == "learn"
    own = _hosts_of_company(company, resolve)
    hosts = check_hosts([*sets.hosts(access.allow), *found, *own], learn=learn)
    if access.network == "allowlist" and not hosts and not may_be_empty:
        raise ConfigError(
            "the network is `allowlist`, but the list of allowed hosts is empty",
            key="allow.empty",
            hint="name each host that workers need: `--allow HOST`; or use `--network none`",
        )
    ports = sorted({host.port for host in hosts if host.name == HOST})
    allowed = tuple((HOST, port) for port in ports)
    return Egress(image=BASE_IMAGE, allowed=allowed, hosts=hosts, learn=learn)


def _hosts_of_company(urls: Iterable[str], resolve: Resolve) -> Iterator[AllowedHost]:
    """Yield entries for a company's mirrors, which may be in a private network."""
    for host in filter(None, map(host_of_url, urls)):
        yield host
        with suppress(OSError, ValueError):
            for address in _addresses(host.name, resolve):
                if not ipaddress.IPv4Network(address).is_global and host.name != HOST:
                    yield replace(host, network=str(ipaddress.IPv4Network(address)))


def check_gateways(
    config: ParallelConfig, egress: Mapping[Access, Egress], features: EngineFeatures
) -> None:
    """Reject an engine that would ignore an allow-list, or has no network for a worker or broker.

    Raises:
        UnsupportedError: A worker needs a network that the engine cannot close.
    """
    check_networks(egress, features, runtime=config.isolation.runtime)
    if config.project.services and not config.isolation.runtime:
        check_shared_network(features.default_runtime or None)
    if features.networks and not features.gateways and config.isolation.keys == "broker":
        raise UnsupportedError(
            "this engine cannot connect workers to a credential broker",
            key="broker.unsupported",
            hint="use `--keys env`",
        )


def check_networks(
    egress: Mapping[Access, Egress], features: EngineFeatures, *, runtime: str | None
) -> None:
    """Reject an engine that cannot close the networks of containers as they ask for it.

    Raises:
        UnsupportedError: A container needs a network that the engine cannot close.
    """
    if egress:
        # protection: default-runtime-is-checked-as-if-it-were-named
        check_runtime(None if runtime else features.default_runtime or None)
    if not features.networks:  # a place's only network is checked elsewhere
        return
    # protection: rootless-engine-refused-for-open-network
    if not features.open_network and any(access.network == "open" for access in egress):
        raise UnsupportedError(
            "this engine is rootless: it cannot close this machine to workers on an open network",
            key="network.rootless",
            hint="use `--network none`, also for setup, teardown and checks; or an engine that "
            "root started",
        )
    if not features.gateways and any(
        stage_egress.hosts is not None for stage_egress in egress.values()
    ):
        raise UnsupportedError(
            "this engine has no gateways, which are needed for allow-lists, and for published "
            "ports without an open network",
            key="gateway.unsupported",
            hint=("use `--network open`, or " if features.open_network else "use ")
            + "`--network none` without `--ports`",
        )


def base_urls(names: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the base URLs of model APIs that an agent program will use.

    Args:
        names: Environment variables that the program is known to read.
        environment: Environment of the program's container, with the values of the variables.
    """
    # protection: only-base-urls-of-agent-program-open-address
    found = (name for name in names if name.endswith(_BASE_URLS))
    yield from (environment[name] for name in found if name in environment)


def allowed_destinations(
    requested: Iterable[str], urls: Iterable[str], resolve: Resolve = resolve_here
) -> tuple[Destination, ...]:
    """Return the private destinations (address and port) that a worker with a network may reach.

    Args:
        requested: Values of `--allow`: `HOST[:PORT]`.
        urls: Base URLs of model APIs, `http` or `https`; each opens one port. A URL that cannot be
            resolved is skipped: the agent will report the failure.
        resolve: Resolves names as the engine's machine does.

    Raises:
        ConfigError: A requested host is invalid or cannot be resolved.
    """
    found: dict[Destination, None] = {}
    for request in requested:
        found |= dict.fromkeys(_resolve(request, resolve))
    for url in urls:
        found |= dict.fromkeys(_implied(url, resolve))
    return tuple(found)


def _resolve(request: str, resolve: Resolve) -> list[Destination]:
    if request.startswith(SIGN):
        raise ConfigError(
            f"`--allow`: `{request}` is a set of hosts, which needs `--network allowlist`",
            key="allow-set.no-allowlist",
            hint="with `--network open`, public hosts are reached without `--allow`",
        )
    host, port = _split(request)
    try:
        return [(address, port) for address in _addresses(host, resolve)]
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"`--allow`: cannot resolve `{host}`",
            key="allow.unresolvable",
            hint="use a name, an IPv4 address or network, or `host.docker.internal`, each "
            "with or without `:PORT`",
        ) from error


def _split(request: str) -> tuple[str, int | None]:
    host, colon, port = request.rpartition(":")
    if not colon:
        return request, None
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"`--allow`: invalid port: `{port}`",
            key="allow.invalid",
            hint="example: `--allow HOST:8080`",
        )
    return host, int(port)


def _addresses(host: str, resolve: Resolve) -> Sequence[str]:
    if host == HOST:
        return [HOST]
    try:
        return [str(ipaddress.IPv4Network(host, strict=False))]
    except ValueError:
        if not _NAME.fullmatch(host):
            raise
    return resolve(host)


def _implied(url: str, resolve: Resolve) -> list[Destination]:
    try:
        parts = urlsplit(url)
        # URLs with another scheme are not model APIs.
        # protection: base-url-without-port-opens-schemes-port
        usual = _PORTS.get(parts.scheme, 0)
        port = parts.port if usual and parts.port is not None else usual
        return (
            [(address, port) for address in _addresses(parts.hostname or "", resolve)]
            if port
            else []
        )
    except (OSError, ValueError):
        return []
