"""Environment variables of the container that packs a worker's files.

The host sets them in `orchestrator.worker.pack`.
"""

import os

ROOM = "ORCHESTRATOR_HARVEST_ROOM"
"""Name of the variable with the number of bytes that packing may write in addition to the worker's
files.
"""
RESERVED = "ORCHESTRATOR_HARVEST_RESERVED"
"""Name of the variable with the reserved names of worktrees, separated by `/`."""


def room() -> int:
    """Return the number of bytes that packing may write in addition to the worker's files."""
    return int(os.environ.get(ROOM, 1 << 32))


def reserved() -> list[str]:
    """Return the reserved names; `*` at the end of a name stands for all names with that prefix."""
    return os.environ.get(RESERVED, ".architect-parallel-*").split("/")
