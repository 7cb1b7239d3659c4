"""Store the credential broker's grants as files in memory, which the broker's container mounts."""

import os
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import EngineError
from orchestrator.files.atomic import write_private
from orchestrator.state.secret_files import private_directory


def grant_directory(root: Path, run_id: str, owner: tuple[int, int]) -> Path:
    """Return the directory for the grants, which is in memory and belongs to the broker's user.

    Args:
        root: A directory on a file system in memory.
        run_id: Id of the run.
        owner: User of the broker.

    Raises:
        EngineError: The directory could not be created.
    """
    try:
        found = private_directory(root, run_id) / "broker"
        found.mkdir(mode=0o700, exist_ok=True)
        os.chown(found, *owner)
    except OSError as error:
        raise EngineError(f"cannot write the credential broker's keys: {error.strerror}") from error
    return found


def write_grant(directory: Path, name: str, content: bytes, owner: tuple[int, int]) -> None:
    """Write a worker's grant (allowed API calls), so that the broker sees no half-written file.

    Raises:
        EngineError: The file could not be written.
    """
    try:
        write_private(directory / name, content, mode=0o400, owner=owner)
    except OSError as error:
        raise EngineError(f"cannot write the credential broker's keys: {error.strerror}") from error


def remove_grant(directory: Path, name: str) -> None:
    """Remove a worker's grant if it exists."""
    with suppress(OSError):
        (directory / name).unlink()
