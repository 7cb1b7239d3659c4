"""Read files of images and containers, without starting anything of an image."""

import io
import tarfile
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from io import RawIOBase
from typing import IO, Any, cast

import docker
import docker.errors

from orchestrator.base.errors import EngineError
from orchestrator.engine.docker.container import remove_container
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.interface.labels import for_a_moment
from orchestrator.engine.places.in_place.archive import ArchiveError, Source

_LARGEST = 16 * 1024**2
"""Maximum size in bytes of a file; larger ones are left out."""
_MOST = 256 * 1024**2
"""Maximum number of bytes of all files together."""
_MOST_ENTRIES = 1_000_000
_LINKS = 8
_SYMLINK = 1 << 27
"""Bit of a symbolic link in the modes that the engine reports."""


def read_file(client: docker.APIClient, container: str, path: str, *, most: int) -> bytes | None:
    """Return a file of a container, which need not run; None if it does not exist.

    Args:
        client: The Docker client.
        container: The container.
        path: Path of the file, or of a link to it.
        most: Maximum size in bytes of the file, with the archive around it.

    Raises:
        EngineError: It is not a file, it is too large, or the engine does not answer.
    """
    try:
        return _read_file(client, container, path, most)
    except (ArchiveError, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"cannot read {path} of the container: {error}", key="image.unreadable"
        ) from error


def _read_file(client: docker.APIClient, container: str, path: str, most: int) -> bytes | None:
    with translated(f"read {path} of the container"):
        try:
            pieces, found = client.get_archive(container, path)
            for _ in range(_LINKS):
                if found["mode"] & _SYMLINK:
                    pieces, found = client.get_archive(container, found["linkTarget"])
        except docker.errors.NotFound:
            return None
        data = Source(iter(pieces)).up_to(most)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        entry = archive.next()
        file = archive.extractfile(entry) if entry is not None and entry.isreg() else None
        if file is None:
            raise EngineError(f"{path} of the container is not a file", key="image.unreadable")
        return file.read()


def shell_of(
    client: docker.APIClient, container: str, image: str, known: MutableMapping[str, bytes]
) -> bytes:
    """Return the shell of a container's image, and add it to the known ones, by the image's id.

    Raises:
        EngineError: The image has none.
    """
    with translated("inspect the image"):
        found = client.inspect_image(image)  # type: ignore[no-untyped-call]
    shell = known.get(found["Id"])
    if shell is None:
        shell = read_file(client, container, "/bin/sh", most=_LARGEST)
        if shell is None:
            raise EngineError(f"the image `{image}` has no `/bin/sh`", key="image.no-shell")
        known[found["Id"]] = shell
    return shell


def image_files(
    client: docker.APIClient, image: str, top: str, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of wanted regular files at or below a path of an image.

    Raises:
        EngineError: The image has too many files.
    """
    with translated(f"read files of `{image}`"), _container(client, image) as container:
        try:
            stream, _ = client.get_archive(container, top)
        except docker.errors.NotFound:
            return
        parent = top.rpartition("/")[0]
        read = 0
        try:
            with tarfile.open(fileobj=cast(IO[bytes], _Stream(stream)), mode="r|") as archive:
                for number, member in enumerate(archive):
                    path = f"{parent}/{member.name}"
                    if number >= _MOST_ENTRIES or read > _MOST:
                        raise EngineError(
                            f"`{image}` has too many files below {top}", key="image.too-many-files"
                        )
                    if not member.isreg() or member.size > _LARGEST or not wanted(path):
                        continue
                    content = archive.extractfile(member)
                    read += member.size
                    yield path, content.read() if content else b""
        except tarfile.TarError as error:
            raise EngineError(
                f"cannot read files of `{image}`: {error}", key="image.unreadable"
            ) from error


@contextmanager
def _container(client: docker.APIClient, image: str) -> Iterator[str]:
    """Create a container that is never started, so that its files can be read."""
    created: dict[str, Any] = client.create_container(
        image,
        ["true"],
        entrypoint=[],
        labels=for_a_moment(),
        host_config=client.create_host_config(network_mode="none"),
        use_config_proxy=False,
    )
    try:
        yield created["Id"]
    finally:
        remove_container(client, created["Id"])


class _Stream(RawIOBase):
    """A file object of the chunks that the daemon sends."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._rest += chunk
        taken = self._rest if size < 0 else self._rest[:size]
        self._rest = self._rest[len(taken) :]
        return taken
