"""The Docker engine: check the daemon, start containers, list and remove leftovers."""

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import docker.errors

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    ImageNotFoundError,
    NotRunningError,
    PortTakenError,
    UnsupportedError,
)
from orchestrator.engine.docker.address import address_of
from orchestrator.engine.docker.arguments import SHARED_NETWORK
from orchestrator.engine.docker.connection import connect
from orchestrator.engine.docker.container import (
    DockerContainer,
    adopt,
    remove_container,
    remove_network,
)
from orchestrator.engine.docker.counters import measure
from orchestrator.engine.docker.dialect import Dialect, dialect_of, identify, labelled
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.firewall import (
    close_host,
    create,
    cut_off,
    gateway_of,
    start_guard,
)
from orchestrator.engine.docker.image_defaults import image_config
from orchestrator.engine.docker.images import DockerImages
from orchestrator.engine.docker.machine_network import MachineNetwork, this_machine
from orchestrator.engine.docker.network_filter import Helper, NetworkFilter
from orchestrator.engine.docker.networks import (
    Made,
    Make,
    bridge_of,
    create_bridge,
    create_internal_network,
    find_bridge,
)
from orchestrator.engine.docker.other_machine import machine_of, resolve_there
from orchestrator.engine.docker.process import DockerProcess
from orchestrator.engine.docker.requirements import check_address, fingerprint, is_rootless
from orchestrator.engine.docker.rules import HOST
from orchestrator.engine.docker.seccomp import is_supported
from orchestrator.engine.docker.ssh import listens, tunnel_to
from orchestrator.engine.egress import has_own_kernel
from orchestrator.engine.images.names import image_hint
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.inner_command import GRACE, InnerCommand
from orchestrator.engine.interface.labels import FILTER, SHARES
from orchestrator.engine.interface.protocol import (
    Leftover,
    Measurement,
    PrivateNetwork,
    TerminalSize,
)
from orchestrator.engine.interface.spec import ContainerSpec, Egress
from orchestrator.engine.places.place import Place, PlaceSpec, Waiter
from orchestrator.engine.places.porter_calls import repeatable

_OWN_ADDRESSES = 4
"""Number of addresses in a network that no container can have, such as the broadcast address."""


class DockerEngine(DockerImages):
    """Implements `orchestrator.engine.interface.protocol.Engine`."""

    name = "docker"

    def __init__(self, address: str = "") -> None:
        """Connect to the daemon.

        Args:
            address: Its address. Default: that of the daemon which the user chose.
        """
        self._address = address_of(os.environ, address)
        with translated("connect to the Docker engine"):
            check_address(self._address)
            client = connect(self._address)
        super().__init__(client)
        self._helpers: dict[str, Helper] = {}
        """The helpers that filter the networks of workers, by the network's bridge."""
        self._bridges: dict[str, str] = {}
        """The bridges of known networks, by the network's id."""
        self._shells: dict[str, bytes] = {}
        """The shells of images for steps of places, by the image's id."""
        self.is_here = self._address.is_socket
        self._asking = threading.Lock()
        self._elsewhere: MachineNetwork | None = None
        """What another machine said of itself; None if it was not asked."""

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        """Check that the daemon can run the containers of a run, and return its features."""
        with translated("query the Docker engine"):
            version = self._client.version()
        kind, info = identify(self._info(), version)
        for image in images:
            if self.image_id(image) is None:
                raise ImageNotFoundError(
                    f"no such image: `{image}`", key="image.missing", hint=image_hint(image)
                )
        runtimes = tuple(sorted(info.get("Runtimes") or {}))
        if runtime is not None and runtime not in runtimes:
            raise UnsupportedError(
                f"the Docker engine has no runtime `{runtime}`",
                key="runtime.unknown",
                hint=f"runtimes of the engine: {', '.join(runtimes)}",
            )
        default = str(info.get("DefaultRuntime") or "")
        # protection: no-gateway-on-podman
        # protection: no-open-network-on-rootless-engine
        return EngineFeatures(
            overlay=self._may_overlay(info),
            runtimes=runtimes,
            cpus=info["NCPU"],
            memory=info["MemTotal"],
            version=f"{kind} {info['ServerVersion']}",
            default_runtime=default if has_own_kernel(default or None) else "",
            seccomp=is_supported(info),
            open_network=not is_rootless(info),
            gateways=kind == "docker" and not is_rootless(info),
            ports=self._address.is_ssh or self._address.is_socket,
            id=str(info.get("ID") or ""),
            address=self._address.url,
            fingerprint=fingerprint(info),
        )

    @repeatable
    def _info(self) -> dict[str, Any]:
        with translated("query the Docker engine"):
            info: dict[str, Any] = self._client.info()
        return info

    @cached_property
    def _dialect(self) -> Dialect:
        with translated("query the engine"):
            return dialect_of(self._client, self._client.version(), self._info())

    @staticmethod
    def _may_overlay(info: Mapping[str, Any]) -> bool:
        """Return whether overlays of this machine's files work: not in Docker Desktop's VM."""
        return "Docker Desktop" not in info.get("OperatingSystem", "")

    def create(self, spec: ContainerSpec) -> DockerContainer:
        """Create a container and attach to its output; after a failure, no container remains."""
        return self.create_with(spec, partial(create, self._client, dialect=self._dialect))

    def open_place(self, spec: PlaceSpec, *, waiter: Waiter | None = None) -> Place:  # noqa: ARG002
        from orchestrator.engine.docker.volume_place import VolumePlace

        return VolumePlace(
            self._client, spec, dialect=self._dialect, networks=self, shells=self._shells
        )

    def create_with(self, spec: ContainerSpec, make: Make[Made]) -> Made:
        """Create a container with its network by a function, which creates the container alone."""
        if spec.network_of is not None:
            return self._create_in_network_of(spec, spec.network_of, make)
        if spec.egress is None:
            return make(spec)
        helper = self._filtering_helper(spec, spec.egress)
        if helper is not None:
            return self._create_filtered(spec, spec.egress, helper, make)
        guard = self._start_guard(spec, spec.egress)
        try:
            container = make(_sharing(spec, guard))
        except BaseException:
            guard.remove()
            raise
        container.guard, container.ports = guard, guard.ports
        try:
            self._bring_here(guard.ports)
        except BaseException:
            container.remove()
            raise
        return container

    def _bring_here(self, ports: Mapping[int, int]) -> None:
        """Let the published ports of another machine be reached at 127.0.0.1 of this one.

        Raises:
            PortTakenError: A port cannot be forwarded.
            UnsupportedError: The engine publishes ports on another machine.
        """
        for port in () if self.is_here else ports.values():
            if self._address.is_ssh:
                tunnel_to(self._address.url).forward(port)
            elif not listens(port):
                raise UnsupportedError(
                    "the engine publishes ports on another machine",
                    key="engine.ports-elsewhere",
                    hint="reach it by ssh: `DOCKER_HOST=ssh://USER@HOST`; or leave out `ports`",
                )

    def _filtering_helper(self, spec: ContainerSpec, egress: Egress) -> Helper | None:
        """Return the helper that filters a container's network; None if this needs a guard."""
        helper = self._helper(spec.network)
        # protection: gateways-brokers-and-ports-need-guard
        if egress.hosts is not None or spec.link is not None or spec.ports:
            return None
        # protection: workers-have-guards-when-helper-is-gone
        return helper if helper is not None and helper.works() else None

    def _helper(self, network: str) -> Helper | None:
        """Return this process's helper that filters the workers of a network, if there is one."""
        return self._helpers.get(self._bridges.get(network, ""))

    def _create_filtered(
        self, spec: ContainerSpec, egress: Egress, helper: Helper, make: Make[Made]
    ) -> Made:
        """Create a container whose network the helper filters from its start on."""
        labels = {**spec.labels, FILTER: json.dumps(egress.allowed)}
        hosts = {**spec.extra_hosts, HOST: helper.machine.gateway}
        spec = replace(spec, labels=labels, extra_hosts=hosts)
        container = make(spec)
        container.filter = NetworkFilter(container.id, egress.allowed, spec.network, helper)
        return container

    def _start_guard(self, spec: ContainerSpec, egress: Egress) -> DockerContainer:
        if egress.hosts is None:
            machine = self._machine(spec.labels)
            return start_guard(self._client, spec, egress, machine, dialect=self._dialect)
        # Imported here because only an allow-list needs a gateway.
        from orchestrator.engine.docker.gateway import start_gateway

        machine = self._machine(spec.labels)
        return start_gateway(self._client, spec, egress, machine, dialect=self._dialect)

    def _create_in_network_of(self, spec: ContainerSpec, other: str, make: Make[Made]) -> Made:
        holder = self.adopt(other)
        if holder is None:
            raise EngineError(
                "the container that provides the network of the worker's services is gone",
                key="services.network-gone",
            )
        # A container with a guard uses its guard's network, so the guard is the owner to share
        # with.
        owner = holder.guard or holder
        spec = replace(spec, labels={**spec.labels, SHARES: "true"})
        container = make(_sharing(spec, owner))
        container.guard, container.shares_guard = owner, True
        container.ports = holder.ports
        return container

    def start(self, spec: ContainerSpec) -> DockerContainer:
        """Create, attach to and start a container; after a failure, no container remains."""
        container = self.create(spec)
        try:
            container.start()
        except BaseException:
            container.remove()
            raise
        return container

    def adopt(self, container_id: str) -> DockerContainer | None:
        """Return a handle of an existing container and its firewall container; None if gone."""
        container = adopt(self._client, container_id)
        if container is not None and container.filter is not None:
            container.filter.helper = self._helper(container.filter.network)
        if container is not None and self._address.is_ssh:
            # The process of the run, if it is alive, holds the ports already.
            with suppress(PortTakenError):
                self._bring_here(container.ports)
        return container

    def enter(
        self,
        container_id: str,
        command: tuple[str, ...],
        *,
        terminal: TerminalSize | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        grace: float = GRACE,
        stays: bool = False,
    ) -> InnerCommand:
        """Start a command in a running container."""
        start = partial(DockerProcess, self._client, container_id, user=user)
        return InnerCommand(
            start, command, terminal=terminal, env=env, stdin=stdin, cwd=cwd,
            timeout=timeout, grace=grace, stays=stays,
        )  # fmt: skip

    def commit(self, container_id: str, name: str, labels: Mapping[str, str]) -> str:
        """Make an image of a container's root file system, and return the image's id."""
        repository, _, tag = (
            name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "")
        )
        with translated("make an image of the container"):
            try:
                made = self._client.commit(
                    container_id,
                    repository=repository,
                    tag=tag or None,
                    conf={"Labels": {**labels}},
                )
            except docker.errors.NotFound as error:
                raise NotRunningError(
                    "the container is gone", key="container.not-running"
                ) from error
        return str(made["Id"])

    def cut_off(self, container_id: str) -> None:
        """Take the network of a running container away, by rules in it and by the engine."""
        container = self.adopt(container_id)
        if container is None:
            raise NotRunningError("the container is gone", key="container.gone")
        cut_off(self._client, container, self.start)

    def exposed_ports(self, image: str) -> tuple[int, ...]:
        """Return the TCP ports in an image's `EXPOSE` instructions, in ascending order."""
        config = image_config(self._client, image).get("ExposedPorts") or {}
        ports = (port.partition("/") for port in config)
        return tuple(sorted(int(port) for port, _, way in ports if way == "tcp"))

    def has_command(self, image: str) -> bool:
        """Return whether an image has a command of its own, which starts without another one."""
        config = image_config(self._client, image)
        return bool(config.get("Entrypoint") or config.get("Cmd"))

    def create_network(self, name: str, labels: Mapping[str, str]) -> str:
        """Create a bridge network whose containers cannot reach each other."""
        network_id = create_bridge(self._client, name, labels, self._machine(labels))
        self._bridges[network_id] = bridge_of(name)
        return network_id

    def create_private_network(
        self, name: str, labels: Mapping[str, str], *, addresses: int
    ) -> PrivateNetwork:
        """Create a network without internet access, with room for `addresses` containers."""
        machine = self._machine(labels)
        prefix = 32 - (addresses + _OWN_ADDRESSES).bit_length()
        return create_internal_network(self._client, name, labels, machine=machine, prefix=prefix)

    def close_host(
        self, name: str, network: str, egress: Egress, labels: Mapping[str, str]
    ) -> str | None:
        """Block connections from a network's containers to this machine, by a helper container.

        If possible, the helper also filters the network of containers, which then need no guard.
        """
        network_id, bridge = find_bridge(self._client, network)
        if network_id is not None:
            self._bridges[network_id] = bridge
        machine = self._machine(labels)
        start = partial(
            close_host, self._client, name, bridge, egress, labels, machine, dialect=self._dialect
        )
        problem = "containers in the network have gateways"
        if egress.hosts is None:
            try:
                self._helpers[bridge] = start(workers=True)
            except EngineUnavailableError:
                raise
            except EngineError as error:
                problem = error.message
            else:
                return None
        start(workers=False).close()
        return problem

    def note_other_machine(self) -> None:
        """Note that the engine may be on another machine: it does not see this one's files."""
        self.is_here = False

    def resolve(self, name: str) -> list[str]:
        """Return the IPv4 addresses of a name, as the engine's machine resolves it."""
        return resolve_there(self._client, name, dialect=self._dialect)

    def _machine(self, labels: Mapping[str, str]) -> MachineNetwork:
        """Return the addresses, routes and name servers of the engine's machine."""
        # protection: addresses-are-those-of-engines-machine
        if self.is_here:
            # Without the kernel's lists here, as on another system, the engine's machine is asked.
            with suppress(OSError):
                return this_machine(gateway_of(self._client))
        with self._asking:
            if self._elsewhere is None:
                self._elsewhere = machine_of(self._client, labels, dialect=self._dialect)
            return self._elsewhere

    @repeatable
    def usage(self, labels: Mapping[str, str]) -> list[Measurement]:
        """Return the usage of running containers that have all of the given labels."""
        filters = {"label": [f"{key}={value}" for key, value in labels.items()]}
        with translated("list the running containers"):
            running = self._client.containers(filters=filters)
        measured = ((found, measure(self._client, found["Id"])) for found in running)
        return [
            Measurement(id=found["Id"], labels=found["Labels"], usage=usage)
            for found, usage in measured
            if usage is not None
        ]

    @repeatable
    def leftovers(self, labels: Mapping[str, str]) -> list[Leftover]:
        """List containers, networks and volumes that have all of the given labels."""
        filters = {"label": [f"{key}={value}" for key, value in labels.items()]}
        with translated("list leftover objects"):
            containers = labelled(self._client.containers(all=True, filters=filters), labels)
            networks = labelled(self._client.networks(filters=filters), labels)
            volumes = labelled(self._client.volumes(filters=filters)["Volumes"], labels)
        return [
            *(Leftover(kind="container", id=c["Id"], labels=c["Labels"]) for c in containers),
            *(Leftover(kind="network", id=n["Id"], labels=n["Labels"]) for n in networks),
            *(Leftover(kind="volume", id=v["Name"], labels=v["Labels"]) for v in volumes),
        ]

    @repeatable
    def remove(self, leftover: Leftover) -> None:
        """Remove a container, network or volume if it still exists."""
        if leftover.kind == "container":
            remove_container(self._client, leftover.id)
            return
        with translated(f"remove the {leftover.kind}"):
            try:
                if leftover.kind == "network":
                    remove_network(self._client, leftover.id)
                    bridge = self._bridges.pop(leftover.id, "")
                    helper = self._helpers.pop(bridge, None)
                    if helper is not None:
                        helper.close()
                else:
                    self._client.remove_volume(leftover.id, force=True)
            except docker.errors.NotFound:
                return

    def close(self) -> None:
        """Close the connections to the daemon."""
        for helper in self._helpers.values():
            helper.close()
        self._client.close()


def _sharing(spec: ContainerSpec, other: DockerContainer) -> ContainerSpec:
    """Return a specification for a container that joins the network of another container."""
    return replace(spec, network=f"{SHARED_NETWORK}{other.id}", extra_hosts={}, ports={})
