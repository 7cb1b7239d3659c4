"""Read the hidden tests: files outside the repository that no candidate ever sees."""

import os
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.files.safe_open import read_limited
from orchestrator.text.sanitize import is_text, one_line

MOST_FILES = 1000
MOST_BYTES = 16 * 1024**2
"""Maximum size of one hidden file in bytes."""


def read_hidden(directory: Path, *, top: Path) -> dict[str, bytes]:
    """Return the content of all files in a directory, by their relative paths.

    Args:
        directory: The directory.
        top: The repository's top directory. Files in the repository cannot be hidden.

    Raises:
        ConfigError: The directory is missing, empty, in the repository, or has unusable files.
    """
    place = directory.resolve()
    if not place.is_dir():
        raise ConfigError(f"`--hidden` is not a directory: {one_line(str(directory))}")
    if place.is_relative_to(top.resolve()):
        raise ConfigError(
            "`--hidden` is in the repository, where workers could find it",
            hint="keep hidden tests in a directory outside the repository",
        )
    found = _files(place)
    if not found:
        raise ConfigError(f"the directory of `--hidden` has no files: {one_line(str(directory))}")
    return found


def _files(place: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for folder, _, names in os.walk(place):
        for path in (Path(folder, name) for name in sorted(names)):
            shown = str(path.relative_to(place))
            found[shown] = _content(path, shown)
            if len(found) > MOST_FILES:
                raise ConfigError(f"the directory of `--hidden` has more than {MOST_FILES} files")
    return found


def _content(path: Path, shown: str) -> bytes:
    if not is_text(shown):
        raise ConfigError(
            f"`--hidden`: the name of this path is not valid UTF-8: {one_line(shown)}"
        )
    if ".git" in path.parts:
        raise ConfigError(f"`--hidden`: this path is inside `.git`: {one_line(shown)}")
    try:
        return read_limited(path, most=MOST_BYTES)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"`--hidden`: `{one_line(shown)}` cannot be read: {why}") from error
