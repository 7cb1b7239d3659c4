"""Paths of a worker's files in its containers, and names in its state directory."""

from typing import Literal

from orchestrator.engine.interface.spec import BindMount, OverlayMount

WORKSPACE = "/workspace"
"""Path of the worktree in a container."""
STORE = "/git"
"""Path of the worker's own git directory in a container."""
OBJECTS = "/git-objects"
"""Path of the base commit's git objects in a container, which are read-only."""
HOME = "/home/worker"
HARVEST = "/harvest"
"""Path of scripts and temporary files in the container that packs a worker's commits."""
OUT = "/out"
"""Path of the directory that receives the packed commits, in the container that packs them."""
WRITTEN = "/written"
"""Path of the files that the worker wrote, in the container that packs them, if the worktree is an
overlay.
"""
SWEPT = "/swept"
"""Path where overlays are mounted in the packing container, only for the kernel to clean them up.
"""
PROBE = "probe"
"""Name of a directory in a run's directory, for the test whether the engine can mount an overlay.
"""
CACHES = "caches"
"""Name of a directory in a worker's state directory, with its layers over the shared caches."""
CHECKED = "checked"
"""Name of a directory in a worker's state directory, with a fresh checkout of its commit."""

AGENT_STEP = "agent"
"""Name of the step of a worker's place that performs the task."""
HARVEST_STEP = "harvest"
"""Name of the step that packs a worker's commits."""
PACKED = "packed"
"""Name of the part that receives the packed commits."""
SESSION_PART = "session"
"""Name of the part in which the agent program keeps its session."""
PACKING = "packing"
"""Name of the part with the git directory that is used to pack the commits."""

Mode = Literal["overlay", "bind"]
Mount = BindMount | OverlayMount
Mounts = tuple[Mount, ...]


def part_of(target: str) -> str:
    """Return the name of the part at a path of its own in the containers, such as `/caches/pip`."""
    return target.strip("/").replace("/", "-")
