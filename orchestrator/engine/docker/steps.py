"""What the steps of a build leave on the daemon beside the image that was asked for."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import docker
import docker.errors

_STEP = re.compile(r"Step \d+/\d+ : (\w+)")
_IMAGE = re.compile(r" ---> ([0-9a-f]{12})")
_CACHED = " ---> Using cache"


class Steps:
    """The images that the steps of one build make, as the daemon tells of them."""

    def __init__(self) -> None:
        """Know of none yet."""
        self.made: list[str] = []
        """Their ids, the oldest first; what was taken from the cache is not among them."""
        self._new = False

    def following(self, stream: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield what the daemon tells, and note which images it makes."""
        for event in stream:
            self._note(event)
            yield event

    def _note(self, event: Mapping[str, Any]) -> None:
        text = str(event.get("stream") or "")
        if step := _STEP.match(text):
            # The first step of a stage names an image, and makes none.
            self._new = step[1].upper() != "FROM"
        elif text.startswith(_CACHED):
            self._new = False
        elif self._new and (image := _IMAGE.match(text)):
            self.made.append(image[1])

    def remove(self, client: docker.APIClient) -> None:
        """Remove those images that have no name and that no other image stands on."""
        for image in reversed(self.made):
            remove_unnamed(client, image, parents=False)


def remove_unnamed(client: docker.APIClient, image: str, *, parents: bool) -> None:
    """Remove an image, unless it has a name, is in use, or is gone.

    Args:
        client: The daemon.
        image: Its id.
        parents: Remove also what it stands on, as far as that has no name either.
    """
    with suppress(docker.errors.APIError):
        if not client.inspect_image(image)["RepoTags"]:  # type: ignore[no-untyped-call]
            client.remove_image(image, noprune=not parents)
