"""Ask what a step sees of a worker's files."""

from orchestrator.worker.workspace.layout import AGENT_STEP, HARVEST_STEP, Mount
from orchestrator.worker.workspace.mounts import Workspace


def seen(workspace: Workspace, step: str) -> list[Mount]:
    """Return the mounts of a step in a place with agent, setup, teardown and harvest."""
    parts = workspace.parts([AGENT_STEP, "setup", "teardown", HARVEST_STEP])
    return [part.mount for part in parts if step in part.seen_by]
