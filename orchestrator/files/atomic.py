"""Write files atomically: after a crash, a file has either its old or its new content."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers, and a crash at any time, see either the old or the new text."""
    scratch = path.with_name(f"{path.name}.new")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def write_private(
    path: Path, content: bytes, *, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """Write a file that only its owner can read, without waiting for the disk.

    Args:
        path: The file, in a directory that belongs to the caller or to `owner`.
        content: The new content; readers see either the old or the new content.
        mode: Permissions of the file.
        owner: User and group that the file belongs to. Default: the caller.
    """
    scratch = path.with_name(f".{path.name}.new")
    # A process that died may have left the file.
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if owner is not None:
            os.fchown(descriptor, *owner)
    scratch.replace(path)
