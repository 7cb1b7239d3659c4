"""The interface of an engine that builds images."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """An image that an engine has."""

    id: str
    size: int
    """Bytes."""
    created: str
    """RFC 3339."""
    labels: Mapping[str, str]


class ImageEngine(Protocol):
    """An engine that can also make images."""

    def image_id(self, image: str) -> str | None:
        """Return the id of an image it has, or None."""

    def image_info(self, image: str) -> ImageInfo | None:
        """Describe an image it has, or None."""

    def labelled_images(self, label: str) -> Mapping[str, ImageInfo]:
        """Return the images that have a label, by each of their names."""

    def pull(self, image: str, *, progress: Progress) -> None:
        """Fetch an image from its registry.

        Raises:
            ImageBuildError: The registry cannot be reached or lacks it.
        """

    def import_image(self, tarball: Path, *, tag: str, labels: Mapping[str, str]) -> None:
        """Make an image of one layer out of a root file system.

        Raises:
            ImageBuildError: The tarball was refused.
        """

    def build(
        self,
        context: Path,
        *,
        dockerfile: str,
        tag: str,
        args: Mapping[str, str],
        labels: Mapping[str, str],
        progress: Progress,
        use_cache: bool = True,
        target: str | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """Build an image from a folder.

        Args:
            context: The folder.
            dockerfile: In the folder, or an absolute path.
            tag: What to call the image.
            args: Build arguments.
            labels: What the image is labelled with.
            progress: Called with each line that is printed.
            use_cache: Keep steps that were done before.
            target: The stage to build. Default: the last one.
            left_out: Paths below the folder, with `/`, that the build does not see, beside those of
                the folder's `.dockerignore`.

        Raises:
            ImageBuildError: A step failed; the message ends with what it printed last.
        """

    def tag(self, image: str, *, tag: str) -> None:
        """Give an image a second name.

        Raises:
            ImageNotFoundError: The engine does not have `image`.
        """
