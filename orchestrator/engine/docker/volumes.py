"""The volumes of a place, how files of this machine get into them, and containers around them."""

import hashlib
import secrets
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import docker
import docker.errors
from docker.types import Mount

from orchestrator.base.errors import EngineError
from orchestrator.engine.docker.arguments import create_arguments
from orchestrator.engine.docker.container import remove_container, remove_network
from orchestrator.engine.docker.dialect import Dialect, labelled
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.image_defaults import image_config, overridden
from orchestrator.engine.docker.image_files import read_file
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import DIGEST, MANAGED, PLACE, REPOSITORY, ROLE, RUN
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.engine.places.in_place.archive import (
    END,
    ArchiveError,
    text_entry,
)
from orchestrator.engine.places.part_files import FILE, archive_of, is_file, source_of
from orchestrator.engine.places.place import Part, PlaceSpec
from orchestrator.engine.places.porter_calls import repeatable

_COPYING = ("CHOWN", "DAC_OVERRIDE", "FOWNER")
_PIECE = 256 * 1024
_FILLED = "-filled"
"""End of the name of an empty volume that says that another one has all its files."""
_LARGEST_TEXT = 4 * 1024**2
_HELPER_MEMORY = 512 * 1024**2
_HELPER_PIDS = 64
_AT_ONCE = 8
_COPY_TIME = 3600
"""Maximum number of seconds in which the engine may copy the files of a run's worker."""


@dataclass(kw_only=True)
class Filling:
    """What is brought into volumes in one go, by one container."""

    shared: dict[str, tuple[Path, str]] = field(default_factory=dict)
    """Volumes that places of the run share, with the source of their files and its digest."""
    copies: dict[str, tuple[str, Path]] = field(default_factory=dict)
    """Volumes that get a copy of a shared one, and the directory whose owner the files get."""
    sent: dict[str, Path] = field(default_factory=dict)
    """Volumes that get files or directories of this machine."""
    texts: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Volumes that get small files of ours; these arrive last, and in this order."""


class Volumes:
    """Creates the volumes and containers of one place."""

    def __init__(self, client: docker.APIClient, spec: PlaceSpec, *, dialect: Dialect) -> None:
        self._client, self._name, self._dialect = client, spec.name, dialect
        self.labels = {**spec.labels, PLACE: spec.name}
        self._common = {
            key: spec.labels[key] for key in (MANAGED, REPOSITORY, RUN) if key in spec.labels
        }
        """Labels of volumes that all places of a run share; they are removed with the run."""
        # Not all labels of the place: its steps and its porter have roles of their own.
        self._own = {**self._common, PLACE: spec.name}

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
        targets = [mount["Target"] for mount in mounts]
        image = image_config(self._client, spec.image)
        spec = overridden(spec, image, volumes=targets)
        arguments = create_arguments(self._client, spec, self._dialect, image)
        config = arguments["host_config"]
        config["Mounts"] = [*config.get("Mounts", ()), *mounts]
        config["Init"], config["ReadonlyRootfs"] = init, not fills
        with translated("create the container"):
            created: str = self._client.create_container(**arguments)["Id"]
        return created

    def write(self, container: str, directory: str, texts: Mapping[str, bytes]) -> None:
        """Write small files of ours into a volume that a container has mounted."""
        self._unpack(container, directory, _archive(_texts(texts, "")))

    def fill(self, filling: Filling) -> None:
        """Fill volumes.

        A directory gives its owner and mode to the volume's root. Shared volumes count as filled
        from then on.

        Raises:
            EngineError: The files changed meanwhile, or could not be transferred.
            OSError: A file cannot be read.
        """
        filled = (*filling.shared, *filling.copies, *filling.sent, *filling.texts)
        into = {volume: f"to-{number}" for number, volume in enumerate(dict.fromkeys(filled))}
        sources = {shared for shared, _ in filling.copies.values()} - into.keys()
        places = {**into, **{volume: f"from-{n}" for n, volume in enumerate(sorted(sources))}}
        words, late = _copying(filling, places), self._dialect.archives_enter_mounts
        if not late:
            words += _owning(filling, places)
        role, capabilities = f"files-{secrets.token_hex(4)}", _COPYING if words else ()
        spec = self.helper(role, "sh", "-ec", "\n".join(words), capabilities=capabilities)
        mounts = [
            mount(f"/{place}", volume, read_only=volume not in into)
            for volume, place in places.items()
        ]
        container = self.container(spec, mounts, fills=True)
        try:
            shared = {into[name]: source for name, (source, _) in filling.shared.items()}
            if words and late:
                self._unpack_all(container, shared, {})
                self._run(container)
                shared = {}
            sent = {into[name]: source for name, source in filling.sent.items()}
            texts = {into[name]: texts for name, texts in filling.texts.items()}
            self._unpack_all(container, {**shared, **sent}, texts)
            if not late:
                # Podman gives a volume's root to another owner at each archive before the first
                # start of a container with it, and (5.8) at each archive after that start.
                self._run(container)
            for name, (_, digest) in filling.shared.items():
                self._create(f"{name}{_FILLED}", self._shared_labels(digest))
        finally:
            remove_container(self._client, container)

    def _unpack_all(
        self,
        container: str,
        sources: Mapping[str, Path],
        texts: Mapping[str, Mapping[str, bytes]],
    ) -> None:
        """Unpack files and texts into the volumes that a container has mounted, by their place."""
        if self._dialect.archives_enter_mounts:
            # Directories in the archive: an entry `.` would not change the volume's own root.
            sent = (archive_of(source, place) for place, source in sources.items())
            own = (_texts(given, place) for place, given in texts.items())
            self._unpack(container, "/", _archive(*sent, *own))
            return
        for place, source in sources.items():
            self._unpack(container, f"/{place}", _archive(archive_of(source, ".")))
        for place, given in texts.items():
            self._unpack(container, f"/{place}", _archive(_texts(given, "")))

    def _run(self, container: str) -> None:
        with translated("copy files in the engine"):
            self._client.start(container)
            code = self._client.wait(container, timeout=_COPY_TIME)["StatusCode"]
        if code:
            raise EngineError(
                f"files could not be copied in the engine (exit code {code})", key="place.transfer"
            )

    def read(self, volume: str, name: str) -> bytes | None:
        """Return a small file of ours in a volume; None if it does not exist."""
        spec = self.helper(f"files-{secrets.token_hex(4)}", "true")
        container = self.container(spec, [mount("/from", volume, read_only=True)])
        try:
            return read_file(self._client, container, f"/from/{name}", most=_LARGEST_TEXT)
        finally:
            remove_container(self._client, container)

    def send_to_memory(self, source: Path, container: str, directory: str, folder: str) -> None:
        """Write a file, or the files of a directory, into a new directory of root in a volume.

        Raises:
            EngineError: The files changed meanwhile, or could not be transferred.
            OSError: A file cannot be read.
        """
        root = tarfile.TarInfo(folder)
        root.type, root.mode = tarfile.DIRTYPE, 0o755
        # The last entry changes the owner that the source has.
        last = iter([root.tobuf(tarfile.GNU_FORMAT)])
        self._unpack(container, directory, _archive(archive_of(source, folder), last))

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
        return Mount(place.target, f"{directory}/{FILE}", type="bind", read_only=True)

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

    def name_shared(self, digest: str) -> str:
        """Create a volume for files that places of the run share, and return its name."""
        name = f"orchestrator-part-{_short(digest)}-{secrets.token_hex(4)}"
        return self._create(name, self._shared_labels(digest))

    def _shared_labels(self, digest: str) -> dict[str, str]:
        return {**self._common, DIGEST: digest}

    def shared(self) -> dict[str, str]:
        """Return the filled volumes that places of the run share, by the digest of their files."""
        listed = self._listed({**self._common, DIGEST: None})
        filled = (name for name in sorted(listed, reverse=True) if f"{name}{_FILLED}" in listed)
        return {listed[name][DIGEST]: name for name in filled}

    def names(self) -> frozenset[str]:
        """Return the names of the place's volumes that exist."""
        return frozenset(self._listed(self._own))

    @repeatable
    def _listed(self, labels: Mapping[str, str | None]) -> dict[str, dict[str, str]]:
        wanted = [key if value is None else f"{key}={value}" for key, value in labels.items()]
        with translated("list volumes"):
            listed = self._client.volumes(filters={"label": wanted})["Volumes"]
        return {found["Name"]: found["Labels"] for found in labelled(listed, labels)}

    def remove(self) -> None:
        """Remove all containers, volumes and networks of the place."""
        labels = [f"{key}={value}" for key, value in self._own.items()]
        with translated("list the containers and networks of the place"):
            containers = self._client.containers(all=True, filters={"label": labels})
            networks = self._client.networks(filters={"label": labels})
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="remove") as pool:
            list(pool.map(self.remove_container, (found["Id"] for found in containers)))
            list(pool.map(self.remove_volume, self.names()))
        for network in networks:
            remove_network(self._client, network["Id"])

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


def _copying(filling: Filling, places: Mapping[str, str]) -> list[str]:
    """Return the shell commands that copy shared volumes to others."""
    words = []
    for volume, (shared, source) in filling.copies.items():
        info, target = source.lstat(), f"/{places[volume]}"
        words.append(f"cp -a /{places[shared]}/. {target}/")
        words.append(f"chown -hR {info.st_uid}:{info.st_gid} {target}")
    return words


def _owning(filling: Filling, places: Mapping[str, str]) -> list[str]:
    """Return the shell commands that give the roots of volumes the owners and modes of sources."""
    shared = {volume: source for volume, (source, _) in filling.shared.items()}
    words = []
    for volume, source in {**shared, **filling.sent}.items():
        info = source.lstat()
        if stat.S_ISDIR(info.st_mode):
            words.append(f"chown {info.st_uid}:{info.st_gid} /{places[volume]}")
            words.append(f"chmod {stat.S_IMODE(info.st_mode):o} /{places[volume]}")
    return words


def _texts(texts: Mapping[str, bytes], top: str) -> Iterator[bytes]:
    for name, text in texts.items():
        yield from text_entry(text, f"{top}/{name}" if top else name, mode=0o600)


def _archive(*parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield an archive of entries in pieces that are not small."""
    gathered = bytearray()
    for part in parts:
        for piece in part:
            gathered += piece
            if len(gathered) >= _PIECE:
                yield bytes(gathered)
                gathered.clear()
    yield bytes(gathered) + END


def _short(digest: str) -> str:
    return hashlib.sha256(digest.encode()).hexdigest()[:16]
