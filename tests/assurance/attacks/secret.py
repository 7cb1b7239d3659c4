"""The secret of some tasks, and checks of the places where it must not appear."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import docker.errors

NAME = "ATTACK_TOKEN"
VALUE = "watchword-7f3c+not/for=you"
_TURN = 0.3
_MOST = 50 << 20
"""Maximum number of bytes read from a file of the run."""


@contextmanager
def watched_engine(repository: Path, harms: list[str]) -> Iterator[None]:
    """Search the engine's data on the repository's containers for the secret during the block."""
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(repository, harms, done))
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(repository: Path, harms: list[str], done: threading.Event) -> None:
    client = docker.APIClient(version="auto")
    ours = {"label": f"orchestrator.repository={repository}/.git"}
    try:
        while not done.wait(_TURN):
            for item in client.containers(filters=ours):
                if VALUE in _inspected(client, item["Id"]) + json.dumps(item):
                    harms.append("the engine shows a secret")
                    return
    finally:
        client.close()


def _inspected(client: docker.APIClient, container: str) -> str:
    try:
        return json.dumps(client.inspect_container(container))
    except docker.errors.NotFound:
        return ""


def kept_in(run_directory: Path) -> list[str]:
    """List the run's records that contain the secret, other than the worker's own files."""
    found = []
    for pattern in ("*.json", "*.ndjson", "worker-*/*.log", "worker-*/*.json"):
        for path in run_directory.glob(pattern):
            with path.open("rb") as file:
                if VALUE.encode() in file.read(_MOST):
                    found.append(f"a secret in {path.name}")
    return found
