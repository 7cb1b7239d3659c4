"""How engines that speak Docker's API differ: what each accepts, from tests without containers.

`docker-compatible` means the same calls with other options. What an engine does not accept is left
out here; whether a limit is enforced all the same, `engine/limits_probe.py` tests in a container.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any, Literal

import docker
import docker.errors

from orchestrator.engine.docker.seccomp import is_supported, profile
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import for_a_moment

_PODMAN = "Podman"
_PROCESSES = 16384
"""Processes of one user that a container of Podman may have at least; see `Dialect.processes`."""
_REFUSED = ("mount option", "seccomp profile")
"""Phrases in the answers of engines that do not know an option."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What an engine accepts. The defaults are those of Docker."""

    seccomp: str | None = None
    """The profile for system calls: its text, or its path on the engine's machine; None for the
    engine's own.
    """
    log_driver: str = "local"
    """Driver that keeps a limited amount of output, which can be read again."""
    tmpfs_inodes: bool = True
    """Whether the number of files in a file system in memory can be limited."""
    tmpfs_owner: bool = True
    """Whether a file system in memory can have an owner; otherwise every user may write to it."""
    archives_enter_mounts: bool = True
    """Whether an archive that is unpacked at `/` also fills volumes below. If not (Podman), it is
    unpacked at the volume, whose root gets the owner and mode of the archive's entry `.`.
    """
    processes: int | None = None
    """Limit of processes for each user, which must be set: otherwise the engine sets one that needs
    a capability (Podman). Every container has a smaller limit of its own.
    """


def is_podman(version: Mapping[str, Any]) -> bool:
    """Return whether an engine is Podman, by its answer to `/version`."""
    names = (str(part.get("Name", "")) for part in version.get("Components") or ())
    return any(name.startswith(_PODMAN) for name in names)


def identify(
    info: Mapping[str, Any], version: Mapping[str, Any]
) -> tuple[Literal["docker", "podman"], dict[str, Any]]:
    """Return the kind of an engine, and its answer to `/info` with an identifier that lasts.

    Podman's own identifier is another one in each answer.
    """
    if not is_podman(version):
        return "docker", dict(info)
    told = [info.get(name) for name in ("Name", "DockerRootDir", "Rootless")]
    return "podman", {**info, "ID": sha256(json.dumps(told).encode()).hexdigest()[:32]}


def labelled(
    listed: Iterable[dict[str, Any]] | None, labels: Mapping[str, str | None]
) -> list[dict[str, Any]]:
    """Return those of the listed objects that have all labels; None stands for any value.

    Podman 4.3 lists volumes that have one of several labels.
    """
    # protection: objects-of-others-are-not-taken-for-ours
    return [found for found in listed or () if _has(found.get("Labels") or {}, labels)]


def _has(found: Mapping[str, str], labels: Mapping[str, str | None]) -> bool:
    return all(name in found and value in (None, found[name]) for name, value in labels.items())


def dialect_of(
    client: docker.APIClient, version: Mapping[str, Any], info: Mapping[str, Any]
) -> Dialect:
    """Return what an engine accepts.

    Args:
        client: The Docker client.
        version: The answer to `/version`.
        info: The answer to `/info`.

    Raises:
        docker.errors.DockerException: The engine does not answer.
    """
    filters = is_supported(info)
    if not is_podman(version):
        return Dialect(seccomp=profile() if filters else None)

    def accepts(**host_config: Any) -> bool:  # noqa: ANN401
        return _accepts(client, host_config)

    # Podman takes a path where Docker takes the text. The path may not exist on its machine.
    choices = (profile(), str(files(profile.__module__).joinpath("profile.json")))
    profiles = (choice for choice in choices if accepts(security_opt=[f"seccomp={choice}"]))
    drivers = (info.get("Plugins") or {}).get("Log") or ()
    return Dialect(
        seccomp=next(profiles, None) if filters else None,
        log_driver="local" if "local" in drivers else "json-file",
        tmpfs_inodes=accepts(tmpfs={"/tmp": "nr_inodes=9"}),  # noqa: S108 - the container's own
        tmpfs_owner=accepts(tmpfs={"/tmp": "uid=9,gid=9"}),  # noqa: S108 - the container's own
        archives_enter_mounts=False,
        processes=_PROCESSES,
    )


def _accepts(client: docker.APIClient, host_config: Mapping[str, Any]) -> bool:
    """Return whether an engine creates a container with some options; it is never started."""
    config = client.create_host_config(network_mode="none", **host_config)
    labels = for_a_moment()
    try:
        made = client.create_container(
            BASE_IMAGE, ["true"], entrypoint=[], labels=labels, host_config=config,
            use_config_proxy=False,
        )["Id"]  # fmt: skip
    except docker.errors.APIError as error:
        if any(phrase in str(error.explanation) for phrase in _REFUSED):
            return False
        raise
    client.remove_container(made, force=True, v=True)
    return True
