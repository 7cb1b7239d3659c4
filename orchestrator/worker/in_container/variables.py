"""Variables of the harvest's container; the host sets them in `orchestrator.worker.pack`."""

import os

ROOM = "ORCHESTRATOR_HARVEST_ROOM"
"""Variable with the bytes that the harvest may write in addition to the worker's files."""
RESERVED = "ORCHESTRATOR_HARVEST_RESERVED"
"""Variable with the names that are reserved for workers' worktrees, separated by `/`."""


def room() -> int:
    """Return how many bytes the harvest may write in addition to the worker's files."""
    return int(os.environ.get(ROOM, 1 << 32))


def reserved() -> list[str]:
    """Return the reserved names; `*` at the end of a name stands for all names with that prefix."""
    return os.environ.get(RESERVED, ".architect-parallel-*").split("/")
