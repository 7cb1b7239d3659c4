"""Translate a container specification into arguments of the Docker API."""

from collections.abc import Mapping
from typing import Any

import docker.errors
from docker.types import DriverConfig, LogConfig, Mount, Ulimit

from orchestrator.base.errors import EngineError
from orchestrator.engine.docker.dialect import Dialect, process_limit
from orchestrator.engine.docker.image_defaults import withheld
from orchestrator.engine.interface.spec import BindMount, ContainerSpec, OverlayMount, TmpfsMount

SHARED_NETWORK = "container:"
"""Prefix of the network mode of a container that joins another container's network; that
container's id follows.
"""
_SHM = 64 * 1024**2
"""Size of `/dev/shm` in bytes; it counts as memory of the container."""


def create_arguments(
    client: docker.APIClient,
    spec: ContainerSpec,
    dialect: Dialect,
    config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return arguments for `APIClient.create_container` that deny what `spec` does not allow.

    Args:
        client: The Docker client.
        spec: The specification.
        dialect: What the engine knows.
        config: The image's settings, of which some variables are withheld.
    """
    # A variable without a value is removed from those of the image.
    # protection: image-does-not-mislead-git
    hidden = withheld(config or {})
    # protection: settings-of-image-do-not-apply
    return {
        "image": spec.image,
        "command": list(spec.command) or None,
        "entrypoint": None if spec.own_program else [],
        "name": spec.name,
        "user": spec.user or None,
        "working_dir": spec.workdir or None,
        "labels": dict(spec.labels),
        "environment": {**hidden, **spec.env},
        "ports": list(spec.ports),
        # For one that is switched off, Podman 5.8 starts a timer of systemd beside the container.
        "healthcheck": {"test": ["NONE"]} if config is None or config.get("Healthcheck") else None,
        "stop_signal": "SIGTERM",
        # docker-py would add the proxies of the user's `config.json`, with their passwords.
        "use_config_proxy": False,
        "host_config": _host_config(client, spec, dialect),
    }


def _host_config(client: docker.APIClient, spec: ContainerSpec, dialect: Dialect) -> dict[str, Any]:
    filtered = () if dialect.seccomp is None else (f"seccomp={dialect.seccomp}",)
    # protection: container-isolation
    config: dict[str, Any] = client.create_host_config(
        mounts=[
            _mount(mount, spec.labels) for mount in spec.mounts if not isinstance(mount, TmpfsMount)
        ],
        tmpfs={
            mount.target: _tmpfs(mount, spec, dialect)
            for mount in spec.mounts
            if isinstance(mount, TmpfsMount)
        },
        network_mode=spec.network,
        extra_hosts=dict(spec.extra_hosts),
        port_bindings={inside: ("127.0.0.1", host) for inside, host in spec.ports.items()},
        init=True,
        read_only=spec.read_only,
        ipc_mode="private",
        cgroupns="private",
        # Without a network, the daemon would copy the name servers of this machine.
        dns=["127.0.0.1"] if spec.network == "none" else None,
        dns_search=["."] if spec.network == "none" else None,
        shm_size=_SHM,
        restart_policy={"Name": "no"},
        cap_drop=["ALL"],
        cap_add=list(spec.capabilities),
        security_opt=["no-new-privileges", *filtered],
        nano_cpus=None if spec.cpus is None else round(spec.cpus * 1e9),
        mem_limit=spec.memory,
        memswap_limit=spec.memory,
        pids_limit=spec.pids,
        ulimits=[
            Ulimit(name="nofile", soft=spec.open_files, hard=spec.open_files),
            Ulimit(name="core", soft=0, hard=0),
            *process_limit(dialect.processes, spec.pids or 0),
        ],
        log_config=_log_config(spec.kept_output, dialect.log_driver),
        runtime=spec.runtime,
    )
    return config


def _log_config(kept: int, driver: str) -> LogConfig:
    # The orchestrator reads the attached stream; the daemon's copy is for a process that resumes
    # the run. The `local` driver keeps two files of this size and costs least of those that keep
    # logs (measured, 100 MB in one line: none 0.4 s, local 0.5, json-file 2.3).
    if not kept:
        # protection: daemon-stores-no-output
        return LogConfig(type="none")
    options = {"max-size": str(kept), "max-file": "2", "compress": "false"}
    return LogConfig(type=driver, config=options)


def _mount(mount: BindMount | OverlayMount | TmpfsMount, labels: Mapping[str, str]) -> Mount:
    if isinstance(mount, BindMount):
        # protection: read-only-mounts
        return Mount(mount.target, str(mount.source), type="bind", read_only=mount.read_only)
    if isinstance(mount, OverlayMount):
        return _overlay(mount, labels)
    raise EngineError(f"unknown kind of mount: {mount}", key="mount.unknown")


def _overlay(mount: OverlayMount, labels: Mapping[str, str]) -> Mount:
    # redirect_dir: without it, rename(2) of a folder in the lower layer fails with EXDEV.
    redirects = "on" if mount.redirects else "off"
    options = f"lowerdir={mount.lower},upperdir={mount.upper},workdir={mount.work}"
    options += f",redirect_dir={redirects}"
    if mount.read_only:
        # The overlay itself is made read-only, because Docker refuses a read-only anonymous volume.
        options += ",ro"
    driver = DriverConfig("local", {"type": "overlay", "device": "overlay", "o": options})
    # protection: overlay-volumes-are-labelled
    return Mount(
        mount.target, None, type="volume", no_copy=True, labels=dict(labels), driver_config=driver
    )


def _tmpfs(mount: TmpfsMount, spec: ContainerSpec, dialect: Dialect) -> str:
    uid, _, gid = spec.user.partition(":")
    inodes = f",nr_inodes={mount.inodes}" if dialect.tmpfs_inodes else ""
    mode, owner = mount.mode, f",uid={uid},gid={gid}" if spec.user else ""
    if not dialect.tmpfs_owner:
        mode, owner = "1777", ""
    # Docker adds noexec unless exec is given; agents unpack and run programs here.
    # protection: tmpfs-options
    return f"rw,exec,nosuid,nodev,size={mount.size}{inodes},mode={mode}{owner}"
