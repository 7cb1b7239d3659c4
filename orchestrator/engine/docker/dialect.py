"""How engines that speak Docker's API differ: what each accepts, as tests show.

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
from docker.types import Ulimit

from orchestrator.engine.docker.requirements import is_rootless
from orchestrator.engine.docker.seccomp import is_supported, profile
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import for_a_moment

_PODMAN = "Podman"
_PROCESSES = 16384
"""Processes of one user that a container of Podman may have at least; see `Dialect.processes`."""
_FEWER = (None, _PROCESSES, 4096, 1024)
"""What an engine without root may set, tried in this order: no more than its own hard limit."""
_REFUSED = ("mount option", "seccomp profile", "rlimit")
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
    """Limit of processes for each user, for engines that would set one that needs a capability
    (Podman 4.3); None for the engine's own. Every container has a smaller limit of its own.
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

    def accepts(*, starts: bool = False, **host_config: Any) -> bool:  # noqa: ANN401
        return _accepts(client, host_config, starts=starts)

    # Podman takes a path where Docker takes the text. The path may not exist on its machine.
    choices = (profile(), str(files(profile.__module__).joinpath("profile.json")))
    profiles = (choice for choice in choices if accepts(security_opt=[f"seccomp={choice}"]))
    drivers = (info.get("Plugins") or {}).get("Log") or ()
    processes: int | None = _PROCESSES
    if is_rootless(info):
        # On a small machine, or with few processes for each user, the kernel refuses the usual one.
        limits = ((most, process_limit(most)) for most in _FEWER)
        possible = (most for most, ulimits in limits if accepts(starts=True, ulimits=ulimits))
        processes = next(possible, _PROCESSES)
    return Dialect(
        seccomp=next(profiles, None) if filters else None,
        log_driver="local" if "local" in drivers else "json-file",
        tmpfs_inodes=accepts(tmpfs={"/tmp": "nr_inodes=9"}),  # noqa: S108 - the container's own
        tmpfs_owner=accepts(tmpfs={"/tmp": "uid=9,gid=9"}),  # noqa: S108 - the container's own
        archives_enter_mounts=False,
        processes=processes,
    )


def process_limit(most: int | None, needed: int = 0) -> list[Ulimit]:
    """Return the limit of processes for each user of a container that needs some.

    The kernel counts all processes of a user on the machine: this is no limit of one container.
    """
    return [] if most is None else [Ulimit(name="nproc", soft=(n := max(most, needed)), hard=n)]


def _accepts(
    client: docker.APIClient, host_config: Mapping[str, Any], *, starts: bool = False
) -> bool:
    """Return whether an engine creates a container with some options.

    Args:
        client: The Docker client.
        host_config: The options.
        starts: Whether to start the container as well, because the kernel decides; it ends at once.
    """
    config = client.create_host_config(network_mode="none", **host_config)
    labels = for_a_moment()
    made = None
    try:
        made = client.create_container(
            BASE_IMAGE, ["true"], entrypoint=[], labels=labels, host_config=config,
            use_config_proxy=False,
        )["Id"]  # fmt: skip
        if starts:
            client.start(made)
            client.wait(made)
    except docker.errors.APIError as error:
        if any(phrase in str(error.explanation) for phrase in _REFUSED):
            return False
        raise
    finally:
        if made is not None:
            client.remove_container(made, force=True, v=True)
    return True
