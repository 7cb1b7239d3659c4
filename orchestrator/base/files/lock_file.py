"""Lock files, each of which at most one process holds."""

import fcntl
import os
from pathlib import Path
from typing import IO

from orchestrator.base.files.shared import open_shared


def take_lock(path: Path) -> IO[str] | None:
    """Create and lock a file, and return it open; None if another process holds the lock.

    Closing the returned file, or the end of the process, releases the lock.

    Raises:
        OSError: The file cannot be opened: it belongs to a user who does not share it.
    """
    file = os.fdopen(open_shared(path), "r")
    try:
        # protection: one-merge-of-repository-at-time
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
