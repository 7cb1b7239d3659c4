"""Images of agents for tests: built on first use, and kept, as by `make images`."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from orchestrator.engine.images.builder import ImageBuilder, proxy_args
from orchestrator.engine.interface.image_protocol import ImageBuild, ImageEngine


@contextmanager
def built_image(engine: ImageEngine, folder: Path, tag: str) -> Iterator[str]:
    """Build an image for tests, and remove it afterwards."""
    image = ImageBuild(context=folder, tag=tag, args=proxy_args(os.environ))
    engine.build(image, progress=lambda _: None)
    yield tag
    client = docker.from_env()
    client.images.remove(tag, force=True)
    client.close()


def build_agent_image(engine: ImageEngine, agent: str) -> str:
    """Build the image of `agent` unless it is up to date, and return its name."""
    with _builder(engine) as builder:
        return builder.build_worker(agent)


def build_broker_image(engine: ImageEngine) -> str:
    """Build the image of the credential broker unless it is up to date, and return its name."""
    with _builder(engine) as builder:
        return builder.build_broker()


@contextmanager
def _builder(engine: ImageEngine) -> Iterator[ImageBuilder]:
    lock = Path(tempfile.gettempdir()) / f"orchestrator-test-images-{os.getuid()}.lock"
    with lock.open("w") as file:
        # One build at a time: concurrent builds would repeat the layers that they share.
        fcntl.flock(file, fcntl.LOCK_EX)
        builder = ImageBuilder(engine=engine, environ=os.environ, progress=lambda _: None)
        builder.build_base()
        yield builder
