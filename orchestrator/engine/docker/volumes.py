"""The volumes of a place, how files of this machine get into them, and containers around them."""

import hashlib
import io
import secrets
import stat
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import docker
import docker.errors
from docker.types import Mount

from orchestrator.engine.docker.arguments import create_arguments
from orchestrator.engine.docker.container import remove_container, repeatable
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.image_defaults import image_config, overridden
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.in_place.archive import ArchiveError, pack, pack_file
from orchestrator.engine.labels import DIGEST, MANAGED, PLACE, REPOSITORY, ROLE, RUN
from orchestrator.engine.place import Part, PlaceSpec
from orchestrator.engine.spec import BindMount, ContainerSpec
from orchestrator.errors import EngineError, UnsupportedError
from orchestrator.files.walk import Walk

_FROM, _TO = "from", "to"
_COPY = f'cp -a /{_FROM}/. /{_TO}/ && chown -hR "$0" /{_TO}'
_COPYING = ("CHOWN", "DAC_OVERRIDE", "FOWNER")
_FILE = "file"
"""Name of the single file of a part in its volume."""
_PIECE = 256 * 1024
_FILLED = "-filled"
"""End of the name of an empty volume that says that another one has all its files."""
_MOST_FILES = 2_000_000
_HELPER_MEMORY = 512 * 1024**2
_HELPER_PIDS = 64
_sharing = threading.Lock()
"""Held while files that places share are sent, so that this process sends them once."""


class Volumes:
    """Creates the volumes and containers of one place."""

    def __init__(self, client: docker.APIClient, spec: PlaceSpec, *, seccomp: str | None) -> None:
        self._client, self._name, self._seccomp = client, spec.name, seccomp
        self.labels = {**spec.labels, PLACE: spec.name}
        self._common = {
            key: spec.labels[key] for key in (MANAGED, REPOSITORY, RUN) if key in spec.labels
        }
        """Labels of volumes that all places of a run share; they are removed with the run."""

    def create(self, suffix: str, *, memory: str | None = None) -> str:
        """Create a volume unless it exists, on disk or in memory, and return its name."""
        return self._create(f"{self._name}-{suffix}", self.labels, memory)

    @repeatable
    def _create(self, name: str, labels: Mapping[str, str], memory: str | None = None) -> str:
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"{memory},nosuid,nodev"}
        with translated("create a volume"):
            # protection: volumes-of-place-are-labelled
            self._client.create_volume(
                name, driver="local", driver_opts=options if memory else {}, labels=dict(labels)
            )
        return name

    def helper(self, role: str, *command: str, capabilities: tuple[str, ...] = ()) -> ContainerSpec:
        """Return the specification of a helper container, which runs nothing that steps wrote."""
        return ContainerSpec(
            name=f"{self._name}-{role}",
            image=BASE_IMAGE,
            command=command,
            user="0:0",
            workdir="/",
            labels={**self.labels, ROLE: role.partition("-")[0]},
            memory=_HELPER_MEMORY,
            pids=_HELPER_PIDS,
            capabilities=capabilities,
        )

    def container(
        self,
        spec: ContainerSpec,
        mounts: Sequence[Mount],
        *,
        init: bool = True,
        fills: bool = False,
    ) -> str:
        """Create a container with volumes, and return its id.

        Args:
            spec: The container, without the volumes.
            mounts: Mounts of volumes.
            init: Whether the engine's own init process is PID 1.
            fills: Whether the engine unpacks archives at its root; such a container never starts.

        Raises:
            EngineError: The container could not be created, for example because its name is used.
        """
        spec = overridden(spec, image_config(self._client, spec.image))
        arguments = create_arguments(self._client, spec, seccomp=self._seccomp)
        config = arguments["host_config"]
        config["Mounts"] = [*config.get("Mounts", ()), *mounts]
        config["Init"], config["ReadonlyRootfs"] = init, not fills
        with translated("create the container"):
            created: str = self._client.create_container(**arguments)["Id"]
        return created

    def write(
        self, container: str, directory: str, texts: Mapping[str, bytes], *, mode: int = 0o600
    ) -> None:
        """Write small files of ours into a volume that a container has mounted."""
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for name, text in texts.items():
                entry, data = tarfile.TarInfo(name), text
                entry.size, entry.mode = len(data), mode
                archive.addfile(entry, io.BytesIO(data))
        self._unpack(container, directory, iter([made.getvalue()]))

    def send(self, source: Path, volume: str) -> None:
        """Fill a volume with a file, or with a directory, whose owner and mode the volume gets.

        Raises:
            EngineError: The files changed meanwhile, or could not be transferred.
            OSError: A file cannot be read.
        """
        with self._filler({_TO: volume}) as filler:
            # As a directory in the archive: an entry `.` would not change the volume's own root.
            self._unpack(filler, "/", _pieces(source, _TO))

    def send_to_memory(self, source: Path, container: str, directory: str) -> None:
        """Write a file, or the files of a directory, into a volume of a running container.

        Raises:
            EngineError: The files changed meanwhile, or could not be transferred.
            OSError: A file cannot be read.
        """
        self._unpack(container, directory, _pieces(source, ""))

    def mount_of(self, part: Part, volume: str) -> Mount:
        """Return the mount of a part whose files are in a volume.

        Raises:
            UnsupportedError: Steps could write to a single file.
            EngineError: The volume is gone.
        """
        place = part.mount
        if not is_file(source_of(part)):
            # protection: read-only-parts-of-place
            return mount(place.target, volume, read_only=place.read_only)
        with translated("inspect the volume"):
            directory = self._client.inspect_volume(volume)["Mountpoint"]
        # A path of the engine, not of this machine: an engine mounts a part of a volume this way.
        # No step can write to the volume, so nothing else can be at this path.
        return Mount(place.target, f"{directory}/{_FILE}", type="bind", read_only=True)

    def _unpack(self, container: str, directory: str, pieces: Iterator[bytes]) -> None:
        problems: list[OSError | ArchiveError] = []

        def read() -> Iterator[bytes]:
            try:
                yield from pieces
            except (OSError, ArchiveError) as error:
                problems.append(error)
                raise

        try:
            with translated("send files to the place"):
                self._client.put_archive(container, directory, read())
        except (EngineError, ArchiveError) as error:
            if problems and isinstance(problems[0], OSError):
                raise problems[0] from error
            if problems:
                raise EngineError(
                    f"cannot send files to the place: {problems[0]}", key="place.transfer"
                ) from error
            raise

    @contextmanager
    def _filler(self, volumes: Mapping[str, str]) -> Iterator[str]:
        """Yield a container that has volumes mounted and never starts."""
        spec = self.helper(f"files-{secrets.token_hex(4)}", "true")
        container = self.container(
            spec, [mount(f"/{target}", volume) for target, volume in volumes.items()], fills=True
        )
        try:
            yield container
        finally:
            remove_container(self._client, container)

    def share(self, source: Path, digest: str) -> str:
        """Return a volume with files that places of the run share; send them if it is the first."""
        with _sharing:
            found = self._shared(digest)
            filled = sorted(name for name in found if f"{name}{_FILLED}" in found)
            if filled:
                return filled[0]
            labels = {**self._common, DIGEST: digest}
            name = f"orchestrator-part-{_short(digest)}-{secrets.token_hex(4)}"
            self._create(name, labels)
            self.send(source, name)
            return self._create(f"{name}{_FILLED}", labels).removesuffix(_FILLED)

    @repeatable
    def _shared(self, digest: str) -> set[str]:
        labels = [f"{key}={value}" for key, value in {**self._common, DIGEST: digest}.items()]
        with translated("list volumes"):
            listed = self._client.volumes(filters={"label": labels})["Volumes"] or []
        return {found["Name"] for found in listed}

    def copy(self, shared: str, volume: str, source: Path) -> None:
        """Copy shared files within the engine, for the owner of the directory they come from.

        Raises:
            EngineError: The files could not be copied.
        """
        info = source.lstat()
        spec = self.helper(
            f"copy-{secrets.token_hex(4)}", "sh", "-c", _COPY, f"{info.st_uid}:{info.st_gid}",
            capabilities=_COPYING,
        )  # fmt: skip
        mounts = [mount(f"/{_FROM}", shared, read_only=True), mount(f"/{_TO}", volume)]
        container = self.container(spec, mounts)
        try:
            with translated("copy files in the engine"):
                self._client.start(container)
                code = self._client.wait(container, timeout=None)["StatusCode"]
        finally:
            remove_container(self._client, container)
        if code:
            raise EngineError(
                f"files could not be copied in the engine (exit code {code})", key="place.transfer"
            )

    def remove(self) -> None:
        """Remove all containers and volumes of the place."""
        labels = [f"{key}={value}" for key, value in self.labels.items()]
        with translated("list the containers and volumes of the place"):
            containers = self._client.containers(all=True, filters={"label": labels})
            volumes = self._client.volumes(filters={"label": labels})["Volumes"] or []
        for container in containers:
            self.remove_container(container["Id"])
        for volume in volumes:
            self.remove_volume(volume["Name"])

    def remove_container(self, container: str) -> None:
        """Remove a container by force if it exists."""
        remove_container(self._client, container)

    @repeatable
    def remove_volume(self, name: str) -> None:
        """Remove a volume if it exists."""
        with translated("remove the volume"):
            try:
                self._client.remove_volume(name, force=True)
            except docker.errors.NotFound:
                return


def mount(target: str, volume: str, *, read_only: bool = False) -> Mount:
    """Return the mount of a volume, whose content never comes from the image."""
    return Mount(target, volume, type="volume", read_only=read_only, no_copy=True)


def source_of(part: Part) -> Path:
    """Return the file or directory of this machine that a part is a copy of.

    Raises:
        UnsupportedError: It is an overlay.
    """
    if not isinstance(part.mount, BindMount):
        raise UnsupportedError("a place with volumes has no overlays", key="place.no-overlays")
    return part.mount.source


def is_file(source: Path) -> bool:
    """Return whether the source of a part is a single file.

    Raises:
        OSError: It does not exist.
    """
    return stat.S_ISREG(source.lstat().st_mode)


def described(source: Path) -> tuple[str, int]:
    """Return a hash that changes when a file or directory changes, and the size of its files.

    Raises:
        OSError: The source does not exist, or a part of it cannot be read.
    """
    digest, size = hashlib.sha256(), 0
    walk = Walk(source, most=_MOST_FILES)
    found = [("", source.lstat())] if is_file(source) else sorted(walk, key=lambda entry: entry[0])
    for path, info in found:
        known = (path, info.st_mode, info.st_uid, info.st_gid, info.st_size, info.st_mtime_ns)
        digest.update(repr(known).encode("utf-8", "surrogateescape"))
        size += info.st_size if stat.S_ISREG(info.st_mode) else 0
    if walk.hidden:
        raise PermissionError(f"a directory in {source} cannot be read")
    return digest.hexdigest(), size


def _pieces(source: Path, top: str) -> Iterator[bytes]:
    """Yield an archive of a file or directory in pieces that are not small."""
    if is_file(source):
        pieces = pack_file(source, f"{top}/{_FILE}" if top else _FILE)
    else:
        limit = described(source)[1]
        pieces = pack(source, limit=limit, most=_MOST_FILES, top=top, links=True)
    gathered = bytearray()
    for piece in pieces:
        gathered += piece
        if len(gathered) >= _PIECE:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def _short(digest: str) -> str:
    return hashlib.sha256(digest.encode()).hexdigest()[:16]
