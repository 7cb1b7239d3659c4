"""Push images to a registry, and remember by which digests a cluster gets them from there."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.files.user_state import state_home
from orchestrator.engine.interface.image_protocol import ImageEngine, Progress

_LONGEST = 1024**2
_Pushed = TypeAdapter(dict[str, dict[str, str]])
"""References by the name of the image, by registry."""


def push_images(
    engine: ImageEngine, images: Sequence[str], registry: str, *, progress: Progress
) -> dict[str, str]:
    """Push images to a registry, and return and remember their references with digests.

    Args:
        engine: The engine that has the images.
        images: Names of images of ours.
        registry: The registry, with the path below which the images are.
        progress: Called with each line of output.

    Raises:
        ImageNotFoundError: The engine does not have an image.
        ImageBuildError: The registry cannot be reached, or refuses.
        ConfigError: The references cannot be recorded.
    """
    pushed = {}
    for image in images:
        name = f"{registry}/{image.removeprefix('orchestrator/')}"
        digest = engine.push(image, name=name, progress=progress)
        pushed[image] = f"{name.rpartition(':')[0]}@{digest}"
    known = _read()
    known[registry] = {**known.get(registry, {}), **pushed}
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(known, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}", key="file.unwritable"
        ) from error
    return pushed


def references(registry: str) -> Mapping[str, str]:
    """Return the references of the images that this user pushed to a registry, by image."""
    return _read().get(registry, {})


def _read() -> dict[str, dict[str, str]]:
    try:
        return _Pushed.validate_json(read_limited(_path(), most=_LONGEST))
    except (OSError, ValidationError):
        return {}


def _path() -> Path:
    return state_home() / "pushed-images.json"
