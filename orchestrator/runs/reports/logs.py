"""Read the end of a worker's output, for reports."""

import os
from pathlib import Path

from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.sanitize import output_lines


def tail(path: Path, *, most: int) -> str:
    """Return the last whole lines of a log, safe to print; empty if the log cannot be read.

    Args:
        path: The log file.
        most: Maximum number of bytes to read.
    """
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - most, 0))
            content = file.read(most)
    except OSError:
        return ""
    if size > most:
        first, _, rest = content.partition(b"\n")
        content = rest if rest.strip() else first
    return output_lines(content.decode("utf-8", "replace")).strip("\n")


def output_tail(directory: Path, *, most: int) -> str:
    """Return the end of a worker's stderr, or of its stdout if stderr is empty."""
    return tail(directory / "stderr.log", most=most) or tail(directory / "stdout.log", most=most)
