"""Reject container engines that runs cannot use, before a run creates anything."""

import json
import shlex
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from docker.utils import parse_host

from orchestrator.engine.docker.address import Address
from orchestrator.errors import UnsupportedError
from orchestrator.text.sanitize import one_line

_TELLING = (
    *("ID", "Name", "ServerVersion", "KernelVersion", "OperatingSystem", "DockerRootDir"),
    *("Driver", "CgroupDriver", "CgroupVersion", "DefaultRuntime", "Runtimes", "SecurityOptions"),
    *("MemoryLimit", "SwapLimit", "CpuCfsQuota", "PidsLimit", "InitBinary"),
)
"""Keys of the answer to `/info` that stay the same as long as containers behave the same."""


def check_address(address: Address) -> None:
    """Check that a connection to an address can be made, and is not open to others.

    Raises:
        UnsupportedError: The address is a path, or has no TLS.
        docker.errors.DockerException: The address has another form.
    """
    url = address.url
    if url.startswith(("/", "./", "../", "~")):
        raise UnsupportedError(
            f"`DOCKER_HOST` is the path `{one_line(url)}`, not an address",
            key="engine.address",
            hint=f"export DOCKER_HOST={shlex.quote('unix://' + url)}",
        )
    # protection: no-connection-without-tls
    if not address.is_ssh and str(parse_host(url, False, address.has_tls)).startswith("http://"):
        raise UnsupportedError(
            f"the address {address.shown} has no TLS: others could control the engine",
            key="engine.no-tls",
            hint="reach it by ssh, `ssh://USER@HOST`, or with TLS: `DOCKER_TLS_VERIFY=1` and "
            f"`DOCKER_CERT_PATH`; or {_hint(address)}",
        )


def check_engine(address: Address, version: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Reject an engine that would fail in the middle of a run.

    Raises:
        UnsupportedError: The engine is Podman, or rootless.
    """
    names = [str(part.get("Name", "")) for part in version.get("Components") or ()]
    # protection: podman-refused-by-name
    if any(name.startswith("Podman") for name in names):
        number = one_line(str(version.get("Version", "")), limit=50)
        raise UnsupportedError(
            f"Podman {number} is not supported: it lacks mount and log options that workers need",
            key="engine.podman",
            hint=_hint(address),
        )
    # protection: rootless-engine-refused
    if any("rootless" in option for option in info.get("SecurityOptions") or ()):
        raise UnsupportedError(
            "rootless Docker is not supported: its workers could not write to their files",
            key="engine.rootless",
            hint=_hint(address),
        )


def fingerprint(info: Mapping[str, Any]) -> str:
    """Return a text that differs for another daemon, machine, version or configuration."""
    told = [info.get(name) for name in _TELLING]
    # Two machines that were copied from one image have daemons with the same id.
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def _hint(address: Address) -> str:
    undo = address.undo or "`docker context use default`"
    return f"use a local Docker daemon that root started: {undo}, or set `DOCKER_HOST` to `unix://PATH`"
