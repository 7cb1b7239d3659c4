"""Reject container engines that runs cannot use, before a run creates anything."""

import json
import os
import shlex
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from orchestrator.errors import UnsupportedError
from orchestrator.text.sanitize import one_line

_HINT = (
    "use a local Docker daemon that root started: `unset DOCKER_HOST`, or set it to `unix://PATH`"
)

_TELLING = (
    *("ID", "Name", "ServerVersion", "KernelVersion", "OperatingSystem", "DockerRootDir"),
    *("Driver", "CgroupDriver", "CgroupVersion", "DefaultRuntime", "Runtimes", "SecurityOptions"),
    *("MemoryLimit", "SwapLimit", "CpuCfsQuota", "PidsLimit", "InitBinary"),
)
"""Keys of the answer to `/info` that stay the same as long as containers behave the same."""


def check_address() -> None:
    """Check that the variables which choose an engine are ones that docker-py understands.

    Raises:
        UnsupportedError: `DOCKER_HOST` is an SSH address or a path, or `DOCKER_CONTEXT` names a
            context.
    """
    host = os.environ.get("DOCKER_HOST", "")
    context = os.environ.get("DOCKER_CONTEXT", "")
    if host.startswith("ssh://"):
        raise _remote(host)
    if host.startswith(("/", "./", "../", "~")):
        raise UnsupportedError(
            f"`DOCKER_HOST` is the path `{one_line(host)}`, not an address",
            hint=f"export DOCKER_HOST={shlex.quote('unix://' + host)}",
        )
    if not host and context not in ("", "default"):
        raise UnsupportedError(
            f"`DOCKER_CONTEXT` is `{one_line(context)}`: contexts are not supported",
            hint="set `DOCKER_HOST` to the address that `docker context inspect` shows for it, or "
            "`unset DOCKER_CONTEXT`",
        )


def check_engine(base_url: str, version: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Reject an engine that would fail in the middle of a run.

    Args:
        base_url: The engine's address, as in docker-py's client.
        version: The answer to `/version`.
        info: The answer to `/info`.

    Raises:
        UnsupportedError: The engine is Podman, rootless, or not on this machine.
    """
    names = [str(part.get("Name", "")) for part in version.get("Components") or ()]
    # protection: podman-refused-by-name
    if any(name.startswith("Podman") for name in names):
        raise UnsupportedError(
            f"Podman {version.get('Version', '')} is not supported: it lacks mount and log "
            "options that workers need",
            hint=_HINT,
        )
    # protection: remote-engine-refused
    if not base_url.startswith("http+docker://"):
        raise _remote(os.environ.get("DOCKER_HOST") or base_url)
    # protection: rootless-engine-refused
    if any("rootless" in option for option in info.get("SecurityOptions") or ()):
        raise UnsupportedError(
            "rootless Docker is not supported: its workers could not write to their files",
            hint=_HINT,
        )


def fingerprint(info: Mapping[str, Any]) -> str:
    """Return a text that differs for another daemon, machine, version or configuration.

    Args:
        info: The answer to `/info`.
    """
    told = [info.get(name) for name in _TELLING]
    # Two machines that were copied from one image have daemons with the same id.
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def _remote(address: str) -> UnsupportedError:
    return UnsupportedError(
        "an engine that is not reached over a Unix socket is not supported "
        f"(`{address}`): it does not see the files of this machine",
        hint=_HINT,
    )
