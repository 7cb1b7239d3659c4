"""Settings of a worker's container: limits and isolation."""

import re
from typing import Literal

from pydantic import Field, field_validator

from orchestrator.config.values import Model, Ports, Size

_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(=@[^\0]+)?")


class Limits(Model):
    """What one worker may use."""

    cpus: float | None = Field(default=None, gt=0)
    """CPUs. Default: 2, or all there are on a smaller machine."""
    memory: Size = Field(default=4 * 1024**3, ge=16 * 1024**2)
    """Bytes of memory; there is no swap beyond it."""
    pids: int = Field(default=512, ge=8)
    """Processes and threads."""
    open_files: int = Field(default=4096, ge=64)
    """File descriptors of one process."""
    tmp: Size = Field(default=1024**3, ge=1024**2)
    """Bytes in each of `/tmp` and the home directory; they count as memory."""
    disk: Size = Field(default=8 * 1024**3, ge=1024**2)
    """Bytes a worker may write to its files and its git store."""
    inodes: int = Field(default=1_000_000, ge=100)
    """Files and directories a worker may make there."""
    log_limit: Size = Field(default=1024**3, ge=64 * 1024)
    """Bytes it may print."""
    idle_timeout: float = Field(default=0.0, ge=0)
    """Seconds it may print nothing; 0 is for ever."""
    grace: float = Field(default=10.0, ge=0)
    """Seconds between SIGTERM and SIGKILL."""


Network = Literal["none", "open"]


class Isolation(Model):
    """How closed a worker's container is."""

    network: Network = "open"
    """`none`: no network at all. `open`: the internet, but neither this machine, nor private
    networks, nor another worker."""
    setup_network: Network | None = None
    """Network of the `setup` commands. Default: the worker's own."""
    check_network: Network = "none"
    """Network of the `checks`."""
    allow: tuple[str, ...] = ()
    """`HOST[:PORT]` that `open` reaches all the same: a name, an IPv4 address or network, or
    `host.docker.internal` for this machine. The model's base URLs are allowed by themselves."""
    read_only: bool = False
    """Whether it can write to nothing but `/tmp`, its home and its caches, and so commits nothing.
    The `setup` commands can write to its worktree."""
    runtime: str | None = None
    """OCI runtime, as the engine knows it (`runsc`). Default: the engine's own."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables set in the container, beside those the agent needs."""
    secrets: tuple[str, ...] = ()
    """Variables of the caller that a worker gets as files in `/run/secrets`; an option may say
    `NAME=@FILE` too. Their values are taken out of all that a run shows and keeps."""
    history: Literal["full", "shallow"] = "full"
    """`full`: all commits the base reaches. `shallow`: the base alone, for a big repository."""
    ports: Ports = Field(default={})
    """Container ports published on 127.0.0.1, each worker's at ports of its own: a list, or a
    mapping of variables to them. Those of a list are `PORT`, `API_PORT`, `PORT_3` and so on."""

    copied: tuple[str, ...] = ()
    """Untracked files of the checkout that every worktree gets a copy of, and nobody commits:
    patterns as in `.gitignore`, beside those of the file `.worktreeinclude`."""

    @field_validator("copied")
    @classmethod
    def _one_line_each(cls, copied: tuple[str, ...]) -> tuple[str, ...]:
        if any(not one.strip() or set(one) & set("\0\n") for one in copied):
            raise ValueError("a pattern must be one line that is not empty")
        return copied

    @field_validator("secrets")
    @classmethod
    def _no_values(cls, secrets: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_SECRET.fullmatch(secret) for secret in secrets):
            raise ValueError("a secret is given as `NAME` or `NAME=@FILE`, never by its value")
        return secrets

    @field_validator("env")
    @classmethod
    def _usable_names(cls, env: dict[str, str]) -> dict[str, str]:
        if any(not name or "=" in name or "\0" in name + value for name, value in env.items()):
            raise ValueError("a name must not be empty or hold `=`, and nothing may hold NUL")
        return env
