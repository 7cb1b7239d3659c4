"""Interface of an engine that builds images."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """Description of an image that the engine has stored."""

    id: str
    size: int
    """Size in bytes."""
    created: str
    """Time of the image's creation in RFC 3339 format."""
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ImageBuild:
    """An image to be built from a folder."""

    context: Path
    """Folder that is the build context."""
    dockerfile: str = "Dockerfile"
    """Path of the Dockerfile: relative to the context, or absolute."""
    tag: str
    """Name of the new image."""
    args: Mapping[str, str] = field(default_factory=dict)
    """Build arguments."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the new image."""
    use_cache: bool = True
    """Whether to reuse the results of earlier builds."""
    target: str | None = None
    """The stage to build. Default: the last stage."""
    left_out: frozenset[str] = frozenset()
    """Paths below the context, with `/` between components, that the build must not see, in
    addition to those in `.dockerignore`.
    """


class ImageEngine(Protocol):
    """The part of a container engine that builds and inspects images."""

    def image_id(self, image: str) -> str | None:
        """Return the id of an image; None if the engine does not have the image."""

    def image_info(self, image: str) -> ImageInfo | None:
        """Return a description of an image; None if the engine does not have the image."""

    def labelled_images(self, label: str) -> Mapping[str, ImageInfo]:
        """Return the images with a label, by image name; an image with two names occurs twice."""

    def pull(self, image: str, *, progress: Progress) -> None:
        """Pull an image from its registry.

        Raises:
            ImageBuildError: The registry cannot be reached or lacks the image.
        """

    def import_image(self, tarball: Path, *, tag: str, labels: Mapping[str, str]) -> None:
        """Create an image with a single layer from an archive of a root file system.

        Raises:
            ImageBuildError: The engine refused the tarball.
        """

    def build(self, image: ImageBuild, *, progress: Progress) -> None:
        """Build an image from a folder.

        Args:
            image: The image to build.
            progress: Called with each line of output.

        Raises:
            ImageBuildError: A step failed; the message ends with the step's last lines of output.
        """

    def tag(self, image: str, *, tag: str) -> None:
        """Add a name to an image.

        Raises:
            ImageNotFoundError: The engine does not have `image`.
        """

    def push(self, image: str, *, name: str, progress: Progress) -> str:
        """Push an image to a registry, with the user's credentials for it.

        Args:
            image: The image.
            name: Its name there, with the registry.
            progress: Called with each line of output.

        Returns:
            The digest by which the registry knows the image.

        Raises:
            ImageNotFoundError: The engine does not have the image.
            ImageBuildError: The registry cannot be reached, or refuses.
        """

    def files(
        self, image: str, top: str, wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the path and content of wanted regular files at or below a path of an image.

        Nothing of the image is started. Files that are too large are left out.

        Raises:
            EngineError: The image has too many files.
        """

    def save(self, images: Sequence[str]) -> Iterator[bytes]:
        """Return an archive of images and their names, in the format of `docker save`.

        Raises:
            ImageNotFoundError: The engine does not have an image.
        """

    def load(self, archive: IO[bytes]) -> None:
        """Add the images of an archive, which get the names that they have there.

        Raises:
            ImageBuildError: The engine refused the archive.
        """

    def remove_image(self, image: str) -> None:
        """Remove a name of an image, and the image if it has no other name.

        Raises:
            EngineError: A container uses the image.
        """
