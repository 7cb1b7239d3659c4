"""Objects of a repository's runs in the Docker daemon."""

import time
from pathlib import Path

import docker
import docker.errors

from orchestrator.engine.interface.labels import REPOSITORY, ROLE


def ours(client: docker.APIClient, repo: Path) -> list[str]:
    """Return the containers, networks and volumes of a repository's runs."""
    filters = {"label": f"{REPOSITORY}={repo / '.git'}"}
    return [
        *(c["Names"][0] for c in client.containers(all=True, filters=filters)),
        *(n["Name"] for n in client.networks(filters=filters)),
        *(v["Name"] for v in client.volumes(filters=filters)["Volumes"] or []),
    ]


def inside(client: docker.APIClient, container: str, *command: str) -> str:
    """Return what a command prints in a container.

    On a busy machine, the daemon sometimes loses the output of a short command
    (https://github.com/docker/docker-py/issues/2042), so a command without output is repeated.
    """
    for _ in range(5):
        made = client.exec_create(container, list(command))
        if printed := client.exec_start(made["Id"]):
            return str(printed.decode())
    raise AssertionError(f"{command} printed nothing")


def touch_in_workers(client: docker.APIClient, repo: Path, path: str) -> None:
    """Create an empty file in each running container of a worker of the repository's runs."""
    labels = [f"{REPOSITORY}={repo / '.git'}", f"{ROLE}=worker"]
    for one in client.containers(filters={"label": labels}):
        try:
            client.exec_start(client.exec_create(one["Id"], ("touch", path))["Id"])
        except docker.errors.APIError as error:
            # The worker may have ended in the meantime.
            if error.status_code not in (404, 409):
                raise


def wait_for_container(client: docker.APIClient, repo: Path) -> str:
    """Wait until a worker's container of the repository's run is running, and return its id."""
    labels = [f"{REPOSITORY}={repo / '.git'}", f"{ROLE}=worker"]
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        for one in client.containers(filters={"label": labels, "status": "running"}):
            return str(one["Id"])
        time.sleep(0.05)
    raise AssertionError("no container came up")
