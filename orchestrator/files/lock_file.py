"""Lock files, each of which at most one process holds."""

import fcntl
from pathlib import Path
from typing import IO


def take_lock(path: Path) -> IO[str] | None:
    """Create and lock a file, and return it open; None if another process holds the lock.

    Closing the returned file, or the end of the process, releases the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
