"""Paths of a worker's files in its containers, and directories of its state directory."""

from typing import Literal

from orchestrator.engine.spec import BindMount, OverlayMount, TmpfsMount

WORKSPACE = "/workspace"
"""The worktree in a container."""
STORE = "/git"
"""The worker's git directory in a container."""
OBJECTS = "/git-objects"
"""The objects of the base in a container, read-only."""
HOME = "/home/worker"
HARVEST = "/harvest"
"""The harvest's scripts and scratch files, in its container."""
OUT = "/out"
"""Directory in the harvest's container for the output that the host reads."""
WRITTEN = "/written"
"""The files that the worker wrote, in the harvest's container of mode `overlay`."""
SWEPT = "/swept"
"""Directory in the harvest's container where overlays are mounted for the kernel to clean them."""
PROBE = "probe"
"""Directory in a run's state directory that tries whether the engine can mount an overlay."""
CACHES = "caches"
"""Directory in a worker's state directory with its layers over the shared caches."""
CHECKED = "checked"
"""Directory in a worker's state directory with a fresh checkout of the worker's commit."""

Mode = Literal["overlay", "bind"]
Mounts = tuple[BindMount | OverlayMount | TmpfsMount, ...]
