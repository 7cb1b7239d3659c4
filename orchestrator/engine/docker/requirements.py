"""Reject container engines that runs cannot use, before a run creates anything."""

import json
import shlex
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from docker.utils import parse_host

from orchestrator.base.errors import UnsupportedError
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine.docker.address import Address

_TELLING = (
    *("ID", "Name", "ServerVersion", "KernelVersion", "OperatingSystem", "DockerRootDir"),
    *("Driver", "CgroupDriver", "CgroupVersion", "DefaultRuntime", "Runtimes", "SecurityOptions"),
    *("MemoryLimit", "SwapLimit", "CpuCfsQuota", "PidsLimit", "InitBinary", "Rootless"),
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


def is_rootless(info: Mapping[str, Any]) -> bool:
    """Return whether an ordinary user started the engine, by its answer to `/info`."""
    # Docker has a security option for it, Podman a key of its own.
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    # protection: rootless-engine-is-recognised
    return bool(info.get("Rootless")) or any("rootless" in option for option in options)


def fingerprint(info: Mapping[str, Any]) -> str:
    """Return a text that differs for another daemon, machine, version or configuration."""
    told = [info.get(name) for name in _TELLING]
    # Two machines that were copied from one image have daemons with the same id.
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def _hint(address: Address) -> str:
    undo = address.undo or "`docker context use default`"
    return f"use a local Docker daemon that root started: {undo}, or set `DOCKER_HOST` to `unix://PATH`"
