"""A place whose containers mount files of this machine."""

import math
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.base.files.disk_usage import DiskUse, disk_use
from orchestrator.base.files.walk import Walk
from orchestrator.engine.interface.protocol import Container, ContainerEngine
from orchestrator.engine.interface.spec import BindMount
from orchestrator.engine.places.place import Entry, Part, PlaceSpec, Start


class HostPlace:
    """Implements `engine.place.Place` where containers can mount files of this machine.

    Nothing has to be transferred, and no program of the orchestrator runs in the place: this
    process orders every step, enforces its limits, and removes its container.
    """

    def __init__(
        self,
        engine: ContainerEngine,
        spec: PlaceSpec,
        *,
        earlier: Collection[str] = (),
        since: int | None = None,
    ) -> None:
        """Store the arguments; nothing is created.

        Args:
            engine: The engine.
            spec: The place.
            earlier: Ids of containers that have the same labels as the steps, and belong to an
                earlier place.
            since: Time in nanoseconds: only files that changed later count as changed. None: all
                files count, because they are in a layer that was empty at first.
        """
        self.spec = spec
        self._engine = engine
        self._parts = spec.parts
        self._earlier = earlier
        self._since = since

    def put(self, parts: Sequence[Part]) -> None:
        """Mount these files into the next containers; they are in their place already."""
        self._parts = tuple(parts)

    def refresh(self, step: str) -> None:
        """Do nothing: steps see the files of this machine as they are."""

    def order(self, step: str, start: Start) -> Container:
        """Create the container of a step, which mounts the parts of the step."""
        spec = self.spec.step(step).spec
        # protection: step-mounts-only-its-parts
        mounts = (part.mount for part in self._parts if step in part.seen_by)
        return self._engine.create(
            replace(
                spec,
                command=start.command,
                labels={**spec.labels, **start.labels},
                env=start.env,
                mounts=(*mounts, *spec.mounts),
                network=start.network,
                egress=None if start.network == "none" else spec.egress,
                network_of=start.network_of,
                ports=start.ports,
            )
        )

    def step(self, name: str) -> Container | None:
        """Return the container with the labels of a step, if there is one."""
        found = self._engine.leftovers(self.spec.step(name).spec.labels)
        ids = (left.id for left in found if left.kind == "container")
        wanted = next((container for container in ids if container not in self._earlier), None)
        return None if wanted is None else self._engine.adopt(wanted)

    def usage(
        self, parts: Collection[str], *, most_files: int, seconds: float = math.inf
    ) -> DiskUse:
        """Measure the directories of this machine that receive what steps write in some parts."""
        return disk_use(self._written(parts), most_files=most_files, seconds=seconds)

    def changed(self, part: str, *, most: int, seconds: float) -> Iterator[str]:
        """Yield the paths of changed files, without a part that is mounted at `.git`."""
        for root in self._written((part,)):
            for path, info in Walk(root, most=most, until=time.monotonic() + seconds):
                # The modification time is not used: the file's owner can set it to any value.
                is_new = self._since is None or info.st_ctime_ns > self._since
                if path != ".git" and not stat.S_ISDIR(info.st_mode) and is_new:
                    yield path

    def _written(self, parts: Collection[str]) -> list[Path]:
        """Return the directories to which steps write what the parts contain, each one once."""
        mounts = [part.mount for part in self._parts if part.name in parts]
        written = (
            mount.source if isinstance(mount, BindMount) else mount.upper
            for mount in mounts
            if not mount.read_only
        )
        return list(dict.fromkeys(written))

    def journal(self, after: int) -> list[Entry]:  # noqa: ARG002
        """Return nothing: this process observes the steps itself."""
        return []

    def take(self, *_: object, **__: object) -> int:
        """Do nothing: what steps write is in its directory already, and all of it."""
        return 0

    def release(self) -> None:
        """Do nothing: the containers are gone, and the caller removes the files."""

    def remove(self) -> None:
        """Remove the containers that are left of the steps."""
        for step in self.spec.steps:
            while (container := self.step(step.name)) is not None:
                container.remove()
