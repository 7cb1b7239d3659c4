"""Save images to a file, and load them from it on a machine without network."""

import hashlib
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.output import create_output
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine.images.names import is_own_name
from orchestrator.engine.interface.image_protocol import ImageEngine

_MANIFEST: Final = "manifest.json"
_LARGEST: Final = 16 * 1024**2
"""Maximum size in bytes of the manifest, and of an image's configuration."""
_MOST_MEMBERS: Final = 10_000
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class ArchivedImage:
    """An image in an archive."""

    name: str
    digest: str
    """Hash of the image's configuration, which contains the hashes of its layers."""


def save_images(
    engine: ImageEngine, images: Sequence[str], path: Path
) -> tuple[ArchivedImage, ...]:
    """Save images to a new file, and return them with their digests.

    Raises:
        ConfigError: The file exists or cannot be written, or a name is not one of ours.
        ImageNotFoundError: The engine does not have an image.
    """
    _check_names(images)
    try:
        create_output(path, engine.save(images))
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}",
            key="file.unwritable",
            hint="choose the path of a new file",
        ) from error
    with _opened(path) as file:
        return tuple(_read(file, path))


def load_images(
    engine: ImageEngine, path: Path, *, digests: Sequence[str] = ()
) -> tuple[ArchivedImage, ...]:
    """Load the images of a file that `save_images` wrote, and return them with their digests.

    Args:
        engine: The engine that gets the images.
        path: The file.
        digests: If given, the only digests that the file's images may have.

    Raises:
        ConfigError: The file is no such archive, or has an image with another name or digest.
        ImageBuildError: The engine refused the archive.
    """
    for digest in digests:
        if not _DIGEST.fullmatch(digest):
            raise ConfigError(
                f"not a digest: `{one_line(digest)}`",
                key="digest.invalid",
                hint="write `sha256:` and 64 digits",
            )
    with _opened(path) as file:
        found = tuple(_read(file, path))
        # protection: archive-replaces-only-images-of-ours
        _check_names([image.name for image in found])
        # protection: digests-of-loaded-images
        strange = [image for image in found if digests and image.digest not in digests]
        if strange:
            raise ConfigError(
                f"{path}: `{strange[0].name}` has the digest {strange[0].digest}",
                key="digest.mismatch",
                hint="get the file again, or name the digests that `image save` printed",
            )
        file.seek(0)
        engine.load(file)
    return found


def _check_names(images: Sequence[str]) -> None:
    for image in images:
        if not is_own_name(image):
            raise ConfigError(
                f"not an image of orchestrator: `{one_line(image)}`",
                key="image.foreign",
                hint="use `docker save` and `docker load` for other images",
            )


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open_regular(path, follow=True) as file:
            yield file
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", key="file.unreadable") from error


def _read(file: IO[bytes], path: Path) -> Iterator[ArchivedImage]:
    """Yield the images of an archive, after a check that their configurations have their digests.

    The daemon compares each layer with the hash in the configuration.
    """
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            read = _reader(archive)
            for entry in json.loads(read(_MANIFEST)):
                config = str(entry["Config"])
                digest = hashlib.sha256(read(config)).hexdigest()
                if digest not in config:
                    raise ConfigError(
                        f"{path}: an image's configuration was changed", key="archive.altered"
                    )
                for name in entry["RepoTags"]:
                    yield ArchivedImage(name=str(name), digest=f"sha256:{digest}")
    except (tarfile.TarError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not an archive of images",
            key="archive.invalid",
            hint="`orchestrator image save FILE` writes one",
        ) from error


def _reader(archive: tarfile.TarFile) -> Callable[[str], bytes]:
    members: dict[str, tarfile.TarInfo] = {}
    for number, member in enumerate(archive):
        if number >= _MOST_MEMBERS:
            raise ValueError("too many members")
        members[member.name] = member

    def read(name: str) -> bytes:
        member = members[name]
        content = archive.extractfile(member) if member.isreg() else None
        if content is None or member.size > _LARGEST:
            raise ValueError(name)
        return content.read()

    return read
