"""Recognise a full disk in the error output of git."""

import errno

_FULL = "No space left on device"
_TEXTS = (_FULL, "Out of diskspace")
"""The error of the operating system, and that of git when it writes packs and indexes."""


def disk_full(said: str) -> OSError | None:
    """Return an error if git's error output says that the disk is full."""
    return OSError(errno.ENOSPC, _FULL) if any(text in said for text in _TEXTS) else None
