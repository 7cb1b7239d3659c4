"""Objects of a repository's runs in the Docker daemon."""

import time
from pathlib import Path

import docker

from orchestrator.engine.labels import REPOSITORY


def ours(client: docker.APIClient, repo: Path) -> list[str]:
    """Return the containers, networks and volumes of a repository's runs."""
    filters = {"label": f"{REPOSITORY}={repo / '.git'}"}
    return [
        *(c["Names"][0] for c in client.containers(all=True, filters=filters)),
        *(n["Name"] for n in client.networks(filters=filters)),
        *(v["Name"] for v in client.volumes(filters=filters)["Volumes"] or []),
    ]


def wait_for_container(client: docker.APIClient, repo: Path) -> str:
    """Wait until a worker's container of the repository's run is running, and return its id."""
    filters = {"label": f"{REPOSITORY}={repo / '.git'}", "status": "running"}
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found = client.containers(filters=filters)
        if found and "orchestrator.worker" in found[0]["Labels"]:
            return found[0]["Id"]
        time.sleep(0.05)
    raise AssertionError("no container came up")
