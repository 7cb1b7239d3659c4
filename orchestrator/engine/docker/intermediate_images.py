"""Remove the intermediate images that an image build leaves in the daemon."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import docker
import docker.errors

_STEP = re.compile(r"Step \d+/\d+ : (\w+)")
_IMAGE = re.compile(r" ---> ([0-9a-f]{12})")
_CACHED = " ---> Using cache"


class Steps:
    """Records the intermediate images that one build creates, as the daemon reports them."""

    def __init__(self) -> None:
        """Start with no recorded image."""
        self.made: list[str] = []
        """Image ids, oldest first, without images that came from the build cache."""
        self._new = False

    def following(self, stream: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the daemon's progress messages unchanged, and record the images that they name."""
        for event in stream:
            text = str(event.get("stream") or "")
            if step := _STEP.match(text):
                # The first step of a stage (`FROM`) names an existing image and creates none.
                self._new = step[1].upper() != "FROM"
            elif text.startswith(_CACHED):
                self._new = False
            elif self._new and (image := _IMAGE.match(text)):
                self.made.append(image[1])
            yield event

    def remove(self, client: docker.APIClient) -> None:
        """Remove the recorded images that have no name and no child image."""
        for image in reversed(self.made):
            remove_unnamed(client, image, parents=False)


def remove_unnamed(client: docker.APIClient, image: str, *, parents: bool) -> None:
    """Remove an image, unless it has a name, is in use, or is gone.

    Args:
        client: The Docker client.
        image: Id of the image.
        parents: Whether to remove its unnamed parent images too.
    """
    with suppress(docker.errors.APIError):
        if not client.inspect_image(image)["RepoTags"]:  # type: ignore[no-untyped-call]
            client.remove_image(image, noprune=not parents)
