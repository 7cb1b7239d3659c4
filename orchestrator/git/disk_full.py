"""Recognise a full disk in the error output of git."""

import errno

_FULL = "No space left on device"
_TEXTS = (_FULL, "Out of diskspace")
"""Error messages for a full disk: of the operating system, and of git when it writes packs and
indexes.
"""


def disk_full(said: str) -> OSError | None:
    """Return an error if git's error output says that the disk is full; otherwise None."""
    return OSError(errno.ENOSPC, _FULL) if any(text in said for text in _TEXTS) else None
