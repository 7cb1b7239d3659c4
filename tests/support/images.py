"""Agents' images for tests: built when first asked for, and kept, as `make images` keeps them."""

import fcntl
import os
import tempfile
from pathlib import Path

from orchestrator.engine.base import ImageEngine
from orchestrator.images import ImageBuilder


def build_agent_image(engine: ImageEngine, agent: str) -> str:
    """Build the image of `agent` unless it is up to date, and name it."""
    lock = Path(tempfile.gettempdir()) / f"orchestrator-test-images-{os.getuid()}.lock"
    with lock.open("w") as file:
        # One at a time: what two of them share would be made twice.
        fcntl.flock(file, fcntl.LOCK_EX)
        builder = ImageBuilder(engine=engine, environ=os.environ, progress=lambda _: None)
        builder.build_base()
        return builder.build_worker(agent)
