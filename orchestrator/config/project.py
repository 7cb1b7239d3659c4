"""Settings of a project: setup, checks, services, caches."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator

from orchestrator.config.values import (
    DEFAULT_TIMEOUT,
    CacheKind,
    Commands,
    Model,
    Port,
    Size,
    _command,
)


class Service(Model):
    """A program beside each worker's own, such as a database, in a container of its own."""

    image: str = Field(min_length=1)
    """Container image; its own program is started."""
    command: tuple[str, ...] = ()
    """What its program is called with, instead of the image's words."""
    env: dict[str, str] = Field(default={})
    """Variables of the service."""
    port: Port | None = None
    """Where it listens. Default: the lowest port that the image says it exposes."""
    health: str | None = Field(default=None, min_length=1)
    """A command for `sh` in the service's container, which ends well once the service is ready.
    Default: its port takes connections."""
    health_timeout: float = Field(default=60.0, gt=0)
    """Seconds by which it must be ready."""
    variables: dict[str, str] = Field(default={})
    """Variables of the worker, in which `{host}` and `{port}` stand for the service's."""
    tmpfs: tuple[Annotated[str, Field(pattern=r"^/[^:]+$")], ...] = ()
    """Directories that it may write to, beside `/tmp`, `/run` and the image's volumes. They are
    memory, count as such, and are empty at the start."""
    cpus: float = Field(default=1.0, gt=0)
    """CPUs."""
    memory: Size = Field(default=1024**3, ge=16 * 1024**2)
    """Bytes of memory, what it writes included."""
    pids: int = Field(default=256, ge=8)
    """Processes and threads."""


_FILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


_SERVICE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


def variable_prefix(service: str) -> str:
    """Return what a service's variables begin with: `MY_DB` of `my-db`."""
    return service.upper().replace("-", "_")


class Check(Model):
    """A command that tells whether what a worker committed is right."""

    run: Annotated[str, AfterValidator(_command)]
    """A command for `sh`."""
    name: str | None = Field(default=None, min_length=1, max_length=100)
    """Default: the command."""
    timeout: float = Field(default=DEFAULT_TIMEOUT, ge=0)
    """Seconds; 0 is no limit."""

    @property
    def title(self) -> str:
        """What it is called."""
        return self.name or self.run


def _check(value: object) -> object:
    """Read `npm test` as `{run: npm test}`."""
    return {"run": value} if isinstance(value, str) else value


_CHECK_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["run"],
            "properties": Check.model_json_schema()["properties"],
        },
    ]
}


Checks = tuple[Annotated[Check, BeforeValidator(_check), WithJsonSchema(_CHECK_SCHEMA)], ...]


def _told_apart(services: dict[str, Service]) -> dict[str, Service]:
    for name in services:
        if not _SERVICE_NAME.fullmatch(name) or name == "localhost":
            raise ValueError("a name is a host name in small letters, such as `db` or `my-db`")
    ports = [service.port for service in services.values() if service.port is not None]
    if len(set(ports)) < len(ports):
        raise ValueError("two services cannot listen on the same port: they share a network")
    return services


Services = Annotated[dict[str, Service], AfterValidator(_told_apart)]


class Project(Model):
    """What a project needs of a worktree; its fields stand at the top of the file, in no block."""

    setup: Commands = ()
    """Commands that make the worktree ready before the agent starts, in a container of their own;
    what they write into the worktree stays. They may be run again, after an interruption."""
    setup_timeout: float = Field(default=DEFAULT_TIMEOUT, ge=0)
    """Seconds for all `setup` commands together, and for all `teardown` commands; 0 is no limit."""
    teardown: Commands = ()
    """Commands that tidy the worktree up behind the agent, however it ended, before its work is
    committed."""
    checks: Checks = ()
    """Commands that each worker's commit must pass, in a fresh container and checkout: a command,
    or `run` with `name` and `timeout`. A worker that fails one is `partial` (`checks_failed`)."""
    caches: tuple[CacheKind, ...] = ()
    """Package managers whose downloads each worker finds, as `orchestrator cache warm` left them;
    what a worker adds to them or changes is its own, and goes with it."""
    services: Services = Field(default={})
    """By the host name that each worker reaches its own under."""
    dotenv: str | None = None
    """An untracked file of each worktree, such as `.env`, that the variables of the worker's ports
    and services are added to."""

    @field_validator("dotenv")
    @classmethod
    def _inside(cls, dotenv: str | None) -> str | None:
        parts = (".env" if dotenv is None else dotenv).split("/")
        if not all(_FILE_NAME.fullmatch(part) for part in parts) or {".", "..", ".git"} & {*parts}:
            raise ValueError("a path below the worktree, of letters, digits, `.`, `_` and `-`")
        return dotenv

    @field_validator("caches")
    @classmethod
    def _each_once(cls, caches: tuple[CacheKind, ...]) -> tuple[CacheKind, ...]:
        return tuple(dict.fromkeys(caches))
