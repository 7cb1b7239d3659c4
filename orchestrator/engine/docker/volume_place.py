"""A place whose files are in volumes of the engine: nothing of this machine is mounted.

Every part is a volume of its own, because this engine mounts whole volumes only. Steps are
containers with a shim as PID 1, which the porter, a container too, starts and stops
(`engine/in_place`). Commands, variables and parts `in_memory` are only in volumes in memory, and in
no object that the engine's API shows.
"""

import json
import math
import threading
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from secrets import token_hex

import docker
from docker.types import Mount

from orchestrator.base.errors import EngineError, UnsupportedError
from orchestrator.base.files.bundle import bundle
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.engine.docker.dialect import Dialect
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.image_defaults import own_start
from orchestrator.engine.docker.image_files import shell_of
from orchestrator.engine.docker.memory_parts import MEMORY, MemoryParts, options
from orchestrator.engine.docker.porter_calls import STATE, Porter
from orchestrator.engine.docker.volume_step import Networks, VolumeStep, check_place, find_step
from orchestrator.engine.docker.volumes import Filling, Volumes, mount
from orchestrator.engine.interface.labels import STEP
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.engine.places.in_place.commands import SHELL
from orchestrator.engine.places.in_place.porter import FOLLOWS
from orchestrator.engine.places.part_files import described, is_file, source_of, take_part
from orchestrator.engine.places.place import Entry, Part, PlaceSpec, Start, Step
from orchestrator.engine.places.porter_calls import understood

_SHIM = files("orchestrator.engine.places.in_place").joinpath("shim.sh").read_text(encoding="utf-8")
_CHANNEL = "/run/place"
"""Directory of a step's channel in its own container."""
_CHANNELS, _PARTS = "/channels", "/parts"
_CHANNEL_OPTIONS = "nr_blocks=5120,nr_inodes=100,mode=0755"
_READ = ("DAC_READ_SEARCH",)
"""The porter's only capability: it measures directories that a worker closed to others."""
_RECORD = "put.json"
_sharing = threading.Lock()
"""Held while files that places share are sent, so that this process sends them once."""


class VolumePlace:
    """Implements `orchestrator.engine.places.place.Place` for an engine that mounts no files."""

    def __init__(
        self,
        client: docker.APIClient,
        spec: PlaceSpec,
        *,
        dialect: Dialect,
        networks: Networks | None = None,
        shells: MutableMapping[str, bytes] | None = None,
    ) -> None:
        """Store the arguments; `put` creates the place, or opens it again.

        Args:
            client: The Docker client.
            spec: The place.
            dialect: What the engine accepts.
            networks: Gives steps their networks; without it, no step has a network.
            shells: The shells of images that are known already, by the image's id.

        Raises:
            UnsupportedError: The place needs something that these places do not have.
        """
        check_place(spec)
        self._client, self.spec, self._networks = client, spec, networks
        self._shells = {} if shells is None else shells
        self._memory = {part.name for part in spec.parts if part.in_memory}
        self._written = {part.name for part in spec.parts if not part.mount.read_only}
        """Names of the parts that some step may write."""
        self._parts = spec.parts
        self._volumes = Volumes(client, spec, dialect=dialect)
        self._porter = Porter(client, f"{spec.name}-porter")
        self._in_memory = MemoryParts(self._volumes, self._porter)
        self._is_open = False
        self._arrived: dict[str, str] = {}
        """The volumes of the parts whose files have arrived, by the part's name."""

    def put(self, parts: Sequence[Part]) -> None:
        """Send the files of parts that are new or have changed; create the place if necessary.

        If the place's porter has ended, another one continues over the same volumes.
        """
        self._parts = tuple(parts)
        own = {} if self._is_open else self._find()
        with _sharing:
            filling, arrived = self._planned()
            if filling.shared:
                self._fill(filling, arrived, own)
        if not filling.shared:
            self._fill(filling, arrived, own)
        self._arrived, self._is_open = arrived, True

    def _find(self) -> Mapping[str, bytes]:
        """Find what exists of the place; return the files of a porter, unless one runs.

        Raises:
            EngineError: A volume with files of the place is gone.
        """
        found = self._porter.inspect(self._porter.name)
        state = "" if found is None else found["State"]["Status"]
        existing = self._volumes.names()
        started: list[str] = []
        if found is not None and state != "created":
            self._arrived = self._porter.read_record(_RECORD)
        elif f"{self.spec.name}-state" in existing:
            record = self._volumes.read(f"{self.spec.name}-state", _RECORD)
            with understood():
                self._arrived = dict(json.loads(record or b"{}"))
        if found is not None and found["State"]["Running"]:
            return {}
        own = {name for name in self._arrived.values() if name.startswith(self.spec.name)}
        # protection: place-without-its-files-is-not-opened
        if lost := own - existing:
            raise EngineError(
                f"volumes of the worker's place are gone: {', '.join(sorted(lost))}",
                key="place.volumes-gone",
            )
        if state not in ("", "created"):
            self._volumes.remove_container(self._porter.name)
        for step in self.spec.steps:
            container = self._porter.inspect(step.spec.name) if existing else None
            if container is not None and container["State"]["Status"] != "created":
                started.append(step.name)
        place = {
            "channels": _CHANNELS,
            "parts": {name: f"{_PARTS}/{name}" for name in self._written},
            "memory": {name: f"{MEMORY}/{name}" for name in self._memory},
            "start_within": self.spec.start_within,
            "collect_within": self.spec.collect_within,
            "steps": {step.name: self._limits(step) for step in self.spec.steps},
            "started": started,
        }
        program = bundle("orchestrator.engine.places.in_place.porter")
        return {"porter.py": program.encode(), "spec.json": json.dumps(place).encode()}

    def _planned(self) -> tuple[Filling, dict[str, str]]:
        """Return what must be brought into volumes, and then the volumes of all parts."""
        filling, arrived = Filling(), dict(self._arrived)
        shared: dict[str, str] | None = None
        for part in {part.name: part for part in self._parts}.values():
            source = source_of(part)
            if part.name in self._memory or (part.name in self._written & self._arrived.keys()):
                continue
            if part.name in self._written and is_file(source):
                raise UnsupportedError(
                    "steps cannot write to a single file of a place", key="place.single-file"
                )
            known = None
            if part.digest:
                shared = self._volumes.shared() if shared is None else shared
                known = shared.get(part.digest)
                if known is None:
                    known = shared[part.digest] = self._volumes.name_shared(part.digest)
                    filling.shared[known] = source, part.digest
            if part.name in self._written:
                arrived[part.name] = volume = self._volumes.create(f"part-{part.name}")
                if known is None:
                    filling.sent[volume] = source
                else:
                    filling.copies[volume] = known, source
            elif known is not None:
                arrived[part.name] = known
            else:
                # Another volume for other files: steps that have ended may still have the old one.
                suffix = f"part-{part.name}-{described(source)[:16]}"
                if not arrived.get(part.name, "").endswith(suffix):
                    arrived[part.name] = self._volumes.create(suffix)
                    filling.sent[arrived[part.name]] = source
        return filling, arrived

    def _fill(self, filling: Filling, arrived: Mapping[str, str], own: Mapping[str, bytes]) -> None:
        """Bring files into volumes, record it, and start a porter if its own files are given."""
        record = {_RECORD: json.dumps(arrived).encode()}
        if not own:
            if filling != Filling():
                self._volumes.fill(filling)
            if arrived != self._arrived:
                self._volumes.write(self._porter.name, STATE, record)
            return
        # The record arrives after everything else.
        filling.texts[self._volumes.create("state")] = {**own, **record}
        self._volumes.fill(filling)
        self._start_porter()

    def _start_porter(self) -> None:
        """Create the volumes that are missing, and start the porter."""
        spec, volumes = self.spec, self._volumes
        mounts = [mount(STATE, f"{spec.name}-state")]
        for step in spec.steps:
            channel = volumes.create(f"channel-{step.name}", memory=_CHANNEL_OPTIONS)
            mounts.append(mount(f"{_CHANNELS}/{step.name}", channel))
        for name in sorted(self._memory):
            # protection: secret-parts-are-in-memory
            volume = volumes.create(f"part-{name}", memory=options(spec, name))
            mounts.append(mount(f"{MEMORY}/{name}", volume))
        mounts += [
            mount(f"{_PARTS}/{name}", f"{spec.name}-part-{name}", read_only=True)
            for name in sorted(self._written)
        ]
        command = ("python3", "-I", "-S", f"{STATE}/porter.py", STATE, "serve")
        try:
            volumes.container(volumes.helper("porter", *command, capabilities=_READ), mounts)
        except EngineError:
            # Another process opens the same place, or died meanwhile: what follows is the same.
            if self._porter.inspect(self._porter.name) is None:
                raise
        with translated("start the porter of the place"):
            self._client.start(self._porter.name)

    def _limits(self, step: Step) -> dict[str, object]:
        """Return what the porter knows of a step. Parts that no step writes cannot grow."""
        limited = [name for name in step.limits.limited if name in self._written]
        return {**asdict(step.limits), "limited": limited, "after": step.after}

    def refresh(self, step: str) -> None:
        """Send the parts in memory again that have changed."""
        self._in_memory.refresh(part for part in self._parts if step in part.seen_by)

    def order(self, step: str, start: Start) -> VolumeStep:
        """Create the container of a step, and those of the steps that follow it."""
        described = self.spec.step(step)
        if described.spec.own_program:
            start = own_start(self._client, described.spec, start)
        if self._networks is None and (start.network != "none" or start.network_of or start.ports):
            raise UnsupportedError(
                "the steps of this place have no network", key="place.no-network"
            )
        found = None if described.after is None else self.step(step)
        state = "" if found is None else self._porter.state(step)
        if found is not None and state == "waiting":
            # An earlier porter was to start it, or another process died before its order.
            found.remove()
            found = None
        if found is None:
            found = self._create(described, start)
            try:
                self._order(described, start, nonce=token_hex(8))
            except BaseException:
                found.remove()
                raise
        elif state == "ordered":
            self._order(described, start, nonce=token_hex(8))
        found.then = partial(self._create_following, step)
        return found

    def _order(self, step: Step, start: Start, *, nonce: str) -> None:
        order = {
            "step": step.name,
            "nonce": nonce,
            "argv": start.command,
            "env": {**step.spec.env, **start.env},
            "workdir": step.spec.workdir,
        }
        self._porter.send("order", data=json.dumps(order).encode())

    def _create_following(self, step: str) -> None:
        """Let the steps after a step wait in their containers, so that no client is needed."""
        for following in self.spec.steps:
            if following.after == step and following.spec.command and not self.step(following.name):
                start = Start(command=following.spec.command)
                container = self._create(following, start)
                self._order(following, start, nonce=FOLLOWS)
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
                self._in_memory.send(part)
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
            command=(f"{_CHANNEL}/{SHELL}", "-c", _SHIM, "shim", _CHANNEL),
            env={},
            own_program=False,
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
            shell = shell_of(self._client, container, spec.image, self._shells)
            self._porter.send("shell", step, data=shell)
        except BaseException:
            self._volumes.remove_container(container)
            raise
        return VolumeStep(self._client, container, self._porter, step, is_new=True)

    def step(self, name: str) -> VolumeStep | None:
        """Return the container of a step; None if it was not ordered."""
        described = self.spec.step(name)
        found = find_step(self._client, described.spec.name, self._porter, name)
        if found is not None and described.after is None and found.state().started_at is None:
            state = self._porter.state(name)
            # Another process died before its order: the step cannot have begun.
            # protection: step-without-its-order-is-ordered-again
            if state == "waiting":
                found.remove()
                return None
        if found is not None and self._networks is not None:
            found.share_network(self._networks.adopt(found.id))
        return found

    def usage(
        self, parts: Collection[str], *, most_files: int, seconds: float = math.inf
    ) -> DiskUse:
        """Return a measurement that the porter makes now."""
        return self._porter.usage(parts, most_files=most_files, seconds=seconds)

    def changed(self, part: str, *, most: int, seconds: float) -> Iterator[str]:
        """Yield paths of files whose inodes changed after the first step began."""
        yield from self._porter.changed(part, most=most, seconds=seconds)

    def journal(self, after: int) -> list[Entry]:
        """Return what the porter recorded."""
        return self._porter.journal(after)

    def take(self, part: str, into: Path, *, limit: int, partial: bool = False) -> int:
        """Let the porter pack the files of a part, and unpack them here."""
        return take_part(self._porter, part, into, limit=limit, partial=partial)

    def release(self) -> None:
        """Remove the place."""
        self.remove()

    def remove(self) -> None:
        """Remove all containers and volumes of the place."""
        self._porter.close()
        self._volumes.remove()
