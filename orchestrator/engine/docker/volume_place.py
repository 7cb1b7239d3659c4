"""A place whose files are in volumes of the engine: nothing of this machine is mounted.

Every part is a volume of its own, because this engine mounts whole volumes only. Steps are
containers with a shim as PID 1, which the porter, a container too, starts and stops
(`engine/in_place`). Commands, variables and parts `in_memory` are only in volumes in memory, and in
no object that the engine's API shows.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from secrets import token_hex
from typing import Protocol, TypeVar

import docker
from docker.types import Mount

from orchestrator.engine.docker.container import DockerContainer
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.image_files import read_file
from orchestrator.engine.docker.porter_calls import STATE, Porter
from orchestrator.engine.docker.volume_step import VolumeStep, find_step
from orchestrator.engine.docker.volumes import Volumes, described, is_file, mount, source_of
from orchestrator.engine.in_place.archive import ArchiveError, unpack
from orchestrator.engine.in_place.porter import FOLLOWS
from orchestrator.engine.in_place.records import MOST_FILES
from orchestrator.engine.labels import STEP
from orchestrator.engine.place import Entry, Part, PlaceSpec, Start, Step
from orchestrator.engine.spec import ContainerSpec
from orchestrator.errors import EngineError, UnsupportedError
from orchestrator.files.bundle import bundle
from orchestrator.files.disk_usage import DiskUse

_SHIM = files("orchestrator.engine.in_place").joinpath("shim.sh").read_text(encoding="utf-8")
_CHANNEL = "/run/place"
"""Directory of a step's channel in its own container."""
_SHELL = "sh"
"""Name of the shell for the shim in a channel: executable, but not readable, so that no process of
the step can trace PID 1 or write to its memory.
"""
_CHANNELS, _PARTS, _MEMORY = "/channels", "/parts", "/memory"
_CHANNEL_OPTIONS = "size=20m,nr_inodes=100,mode=0755"
_MEMORY_OPTIONS = "size=64m,mode=0755"
_READ = ("DAC_READ_SEARCH",)
"""The porter's only capability: it measures directories that a worker closed to others."""
_RECORD = "put.json"
_LARGEST_SHELL = 16 * 1024**2
_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")

Made = TypeVar("Made", bound=DockerContainer)
Make = Callable[[ContainerSpec], Made]
"""Function that creates a container in the network that the specification names."""


class Networks(Protocol):
    """Gives containers their networks, with packet filters."""

    def create_with(self, spec: ContainerSpec, make: Make[Made]) -> Made:
        """Create a container by a function, in the network that it needs."""

    def adopt(self, container_id: str) -> DockerContainer | None:
        """Return a handle of a container, which knows its network; None if it does not exist."""


class VolumePlace:
    """Implements `orchestrator.engine.place.Place` for an engine that mounts no files."""

    def __init__(
        self,
        client: docker.APIClient,
        spec: PlaceSpec,
        *,
        seccomp: str | None,
        networks: Networks | None = None,
    ) -> None:
        """Create the place, or open it again.

        Args:
            client: The Docker client.
            spec: The place.
            seccomp: The seccomp profile of its containers.
            networks: Gives steps their networks; without it, no step has a network.

        Raises:
            UnsupportedError: The place needs something that these places do not have.
            EngineError: The place could not be created.
        """
        _check(spec)
        self._client, self.spec, self._networks = client, spec, networks
        self._memory = {part.name for part in spec.parts if part.in_memory}
        self._written = {part.name for part in spec.parts if not part.mount.read_only}
        """Names of the parts that some step may write."""
        self._parts = spec.parts
        self._volumes = Volumes(client, spec, seccomp=seccomp)
        self._porter = Porter(client, f"{spec.name}-porter")
        self._arrived: dict[str, str] = {}
        """The volumes of the parts whose files have arrived, by the part's name."""
        if not self._porter.was_started():
            self._open()
        self._arrived = self._porter.read_record(_RECORD)

    def _open(self) -> None:
        """Create the volumes that steps write to, and start the porter."""
        spec, volumes = self.spec, self._volumes
        mounts = [mount(STATE, volumes.create("state"))]
        for step in spec.steps:
            channel = volumes.create(f"channel-{step.name}", memory=_CHANNEL_OPTIONS)
            mounts.append(mount(f"{_CHANNELS}/{step.name}", channel))
        for name in sorted(self._memory):
            # protection: secret-parts-are-in-memory
            volume = volumes.create(f"part-{name}", memory=_MEMORY_OPTIONS)
            mounts.append(mount(f"{_MEMORY}/{name}", volume))
        for name in sorted(self._written):
            volume = volumes.create(f"part-{name}")
            mounts.append(mount(f"{_PARTS}/{name}", volume, read_only=True))
        place = {
            "channels": _CHANNELS,
            "parts": {name: f"{_PARTS}/{name}" for name in self._written},
            "start_within": spec.start_within,
            "collect_within": spec.collect_within,
            "steps": {step.name: self._limits(step) for step in spec.steps},
        }
        program = bundle("orchestrator.engine.in_place.porter")
        own = {"porter.py": program.encode(), "spec.json": json.dumps(place).encode()}
        command = ("python3", "-I", "-S", f"{STATE}/porter.py", STATE, "serve")
        try:
            volumes.container(volumes.helper("porter", *command, capabilities=_READ), mounts)
        except EngineError:
            # Another process opens the same place, or died meanwhile: what follows is the same.
            if self._porter.inspect(self._porter.name) is None:
                raise
        volumes.write(self._porter.name, STATE, own)
        with translated("start the porter of the place"):
            self._client.start(self._porter.name)

    def _limits(self, step: Step) -> dict[str, object]:
        """Return what the porter knows of a step. Parts that no step writes cannot grow."""
        limited = [name for name in step.limits.limited if name in self._written]
        return {**asdict(step.limits), "limited": limited, "after": step.after}

    def put(self, parts: Sequence[Part]) -> None:
        """Send the files of parts that are new or have changed."""
        self._parts = tuple(parts)
        for part in {part.name: part for part in parts}.values():
            source = source_of(part)
            if part.name in self._memory or (part.name in self._written & self._arrived.keys()):
                continue
            if part.name in self._written and is_file(source):
                raise UnsupportedError(
                    "steps cannot write to a single file of a place", key="place.single-file"
                )
            shared = self._volumes.share(source, part.digest) if part.digest else None
            if part.name in self._written:
                volume = self._volumes.create(f"part-{part.name}")
                if shared is None:
                    self._volumes.send(source, volume)
                else:
                    self._volumes.copy(shared, volume, source)
            elif shared is not None:
                volume = shared
            else:
                volume = self._send_given(part.name, source)
            if self._arrived.get(part.name) != volume:
                self._arrived[part.name] = volume
                record = json.dumps(self._arrived)
                self._volumes.write(self._porter.name, STATE, {_RECORD: record.encode()})

    def _send_given(self, name: str, source: Path) -> str:
        """Return a volume with the present files of a part that no step writes."""
        # Another volume for other files: steps that have ended may still have the old one.
        suffix = f"part-{name}-{described(source)[0][:16]}"
        if self._arrived.get(name, "").endswith(suffix):
            return self._arrived[name]
        volume = self._volumes.create(suffix)
        self._volumes.send(source, volume)
        return volume

    def order(self, step: str, start: Start) -> VolumeStep:
        """Create the container of a step, and those of the steps that follow it."""
        described = self.spec.step(step)
        if self._networks is None and (start.network != "none" or start.network_of or start.ports):
            raise UnsupportedError(
                "the steps of this place have no network", key="place.no-network"
            )
        found = self._follower(described)
        if found is None:
            found = self._create(described, start)
            try:
                self._porter.order(_order(described, start, nonce=token_hex(8)))
            except BaseException:
                found.remove()
                raise
        elif self._porter.call("state", step)["state"] == "ordered":
            self._porter.order(_order(described, start, nonce=token_hex(8)))
        self._create_following(step)
        return found

    def _follower(self, step: Step) -> VolumeStep | None:
        """Return the container of a step that starts, or has started, without an order."""
        return None if step.after is None else self.step(step.name)

    def _create_following(self, step: str) -> None:
        """Let the steps after a step wait in their containers, so that no client is needed."""
        for following in self.spec.steps:
            if following.after == step and following.spec.command and not self.step(following.name):
                start = Start(command=following.spec.command)
                container = self._create(following, start)
                self._porter.order(_order(following, start, nonce=FOLLOWS))
                container.start()
                self._create_following(following.name)

    def _create(self, step: Step, start: Start) -> VolumeStep:
        mounts = [mount(_CHANNEL, f"{self.spec.name}-channel-{step.name}", read_only=True)]
        for part in self._parts:
            # protection: step-sees-only-its-parts
            if step.name not in part.seen_by:
                continue
            volume = self._arrived.get(part.name)
            if part.name in self._memory:
                volume = f"{self.spec.name}-part-{part.name}"
                directory = f"{_MEMORY}/{part.name}"
                self._volumes.send_to_memory(source_of(part), self._porter.name, directory)
            if volume is None:
                raise EngineError(
                    f"the files of the part `{part.name}` were not sent", key="place.part-missing"
                )
            mounts.append(self._volumes.mount_of(part, volume))
        labels = {**self._volumes.labels, **step.spec.labels, **start.labels, STEP: step.name}
        # protection: order-is-in-no-object-of-engine
        spec = replace(
            step.spec,
            # The command and its variables come with the order, into memory.
            command=(f"{_CHANNEL}/{_SHELL}", "-c", _SHIM, "shim", _CHANNEL),
            env={},
            labels=labels,
            network=start.network,
            egress=None if start.network == "none" else step.spec.egress,
            network_of=start.network_of,
            ports=start.ports,
        )
        if self._networks is None:
            return self._container(step.name, spec, mounts)
        return self._networks.create_with(
            spec, lambda spec: self._container(step.name, spec, mounts)
        )

    def _container(self, step: str, spec: ContainerSpec, mounts: Sequence[Mount]) -> VolumeStep:
        """Create a container of a step, with the shell for its shim."""
        container = self._volumes.container(spec, mounts, init=False)
        try:
            shell = read_file(self._client, container, "/bin/sh", most=_LARGEST_SHELL)
            if shell is None:
                raise EngineError(
                    f"the image `{spec.image}` has no `/bin/sh`", key="image.no-shell"
                )
            channel = f"{_CHANNELS}/{step}"
            # protection: no-step-traces-its-shim
            self._volumes.write(self._porter.name, channel, {_SHELL: shell}, mode=0o711)
        except BaseException:
            self._volumes.remove_container(container)
            raise
        return VolumeStep(self._client, container, self._porter, step, is_new=True)

    def step(self, name: str) -> VolumeStep | None:
        """Return the container of a step; None if it was not ordered."""
        found = find_step(self._client, self.spec.step(name).spec.name, self._porter, name)
        if found is not None and self._networks is not None:
            found.share_network(self._networks.adopt(found.id))
        return found

    def usage(
        self, parts: Collection[str], *, most_files: int, seconds: float = math.inf
    ) -> DiskUse:
        """Return a measurement that the porter makes now."""
        found = self._porter.call("usage", str(most_files), str(seconds), *parts)
        return DiskUse(**found)

    def changed(self, part: str, *, most: int, seconds: float) -> Iterator[str]:
        """Yield paths of files whose inodes changed after the first step began."""
        yield from self._porter.call("changed", part, str(most), str(seconds))["paths"]

    def journal(self, after: int) -> list[Entry]:
        """Return what the porter recorded."""
        entries = self._porter.call("journal", str(after))["entries"]
        return [Entry(**entry) for entry in entries]

    def take(self, part: str, into: Path, *, limit: int) -> None:
        """Let the porter pack the files of a part, and unpack them here."""
        packed = self._porter.call("pack", part, str(limit))
        digest = hashlib.sha256()
        size = 0

        def pieces() -> Iterator[bytes]:
            nonlocal size
            for _, data in self._porter.read({part: 0}):
                digest.update(data)
                size += len(data)
                yield data

        try:
            unpack(pieces(), into, limit=limit, most=MOST_FILES)
        except ArchiveError as error:
            raise EngineError(
                f"cannot take files from the place: {error}", key="place.transfer"
            ) from error
        if (size, digest.hexdigest()) != (packed["size"], packed["sha256"]):
            raise EngineError(
                "files from the place were altered on their way", key="place.data-altered"
            )

    def release(self) -> None:
        """Remove the place."""
        self.remove()

    def remove(self) -> None:
        """Remove all containers and volumes of the place."""
        self._volumes.remove()


def _check(spec: PlaceSpec) -> None:
    """Check that a place needs nothing that places with volumes do not have.

    Raises:
        UnsupportedError: It does.
    """
    for part in spec.parts:
        source_of(part)
        if not _NAME.fullmatch(part.name):
            raise UnsupportedError(
                f"a place with volumes has no part `{part.name}`", key="place.part-unknown"
            )
    for step in spec.steps:
        user, _, _ = step.spec.user.partition(":")
        # protection: steps-in-volumes-never-run-as-root
        if not user.isdecimal() or int(user) == 0:
            # The porter's user, who could hold the step's channel open.
            raise UnsupportedError(
                "a step of a place with volumes needs a user other than root", key="place.root-step"
            )
        if step.spec.own_program:
            raise UnsupportedError(
                "a place with volumes runs no program of an image as a step", key="place.image-step"
            )
        if not _NAME.fullmatch(step.name):
            raise UnsupportedError(
                f"a place with volumes has no step `{step.name}`", key="place.step-unknown"
            )


def _order(step: Step, start: Start, *, nonce: str) -> dict[str, object]:
    return {
        "step": step.name,
        "nonce": nonce,
        "argv": start.command,
        "env": {**step.spec.env, **start.env},
        "workdir": step.spec.workdir,
    }
