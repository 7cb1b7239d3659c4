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
