"""Settings of a project: setup, checks, services, caches."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from orchestrator.config.settings.option import Group, Option
from orchestrator.config.settings.values import (
    DEFAULT_TIMEOUT,
    LONGEST,
    CacheKind,
    CommandLine,
    Commands,
    Cpus,
    Memory,
    Model,
    Pids,
    Port,
    Seconds,
)


class Service(Model):
    """A service that runs in a container beside each worker, such as a database."""

    image: str = Field(min_length=1)
    """Container image of the service; its default entrypoint is started."""
    command: tuple[str, ...] = ()
    """Arguments of the entrypoint, instead of the image's default command."""
    env: dict[str, str] = Field(default={})
    """Environment variables of the service."""
    port: Port | None = None
    """Port on which the service listens. Default: the lowest port that the image exposes."""
    health: str | None = Field(default=None, min_length=1)
    """Shell command that succeeds in the service's container once the service is ready. Default:
    the service is ready when its port accepts connections."""
    health_timeout: float = Field(default=60.0, gt=0, le=LONGEST)
    """Seconds within which the service must become ready."""
    variables: dict[str, str] = Field(default={})
    """Environment variables that the worker gets; `{host}` and `{port}` are replaced by those of
    the service.
    """
    tmpfs: tuple[Annotated[str, Field(pattern=r"^/[^:]+$")], ...] = ()
    """Directories that the service may write to, besides `/tmp`, `/run` and the image's volumes.
    They are kept in memory, count as memory, and start empty."""
    cpus: Cpus = 1.0
    """Number of CPUs of the service."""
    memory: Memory = 1024**3
    """Memory of the service in bytes, including the files it writes."""
    pids: Pids = 256
    """Maximum number of processes and threads of the service. A cluster cannot enforce it."""
    required: bool = True
    """Whether a worker fails (`service_died`) if the service ends before its task. With `false`,
    the worker's result only says so."""


_FILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


_SERVICE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


def variable_prefix(service: str) -> str:
    """Return the prefix of a service's variables: `MY_DB` for the service `my-db`."""
    return service.upper().replace("-", "_")


class Check(Model):
    """A command that must succeed on each worker's commit."""

    run: CommandLine
    """Shell command."""
    name: str | None = Field(default=None, min_length=1, max_length=100)
    """Name of the check in reports. Default: the command."""
    timeout: Seconds = DEFAULT_TIMEOUT
    """Seconds that the check may run; 0 disables the limit."""

    @property
    def title(self) -> str:
        """The check's name in reports."""
        return self.name or self.run


def _check_from_command(value: object) -> object:
    """Convert a check given as a command, such as `npm test`, to the form `{run: npm test}`."""
    return {"run": value} if isinstance(value, str) else value


class _CheckSchema:
    """JSON Schema of a check, which is a text or an object; created only when it is asked for."""

    def __get_pydantic_json_schema__(self, *_: object) -> dict[str, Any]:
        """Return the schema without references to other parts of the document."""
        check = {
            "type": "object",
            "additionalProperties": False,
            "required": ["run"],
            "properties": Check.model_json_schema()["properties"],
        }
        return {"anyOf": [{"type": "string"}, check]}


Checks = tuple[Annotated[Check, BeforeValidator(_check_from_command), _CheckSchema()], ...]


def _check_services(services: dict[str, Service]) -> dict[str, Service]:
    for name in services:
        if not _SERVICE_NAME.fullmatch(name) or name == "localhost":
            raise ValueError(
                "a service's name must be a lowercase host name, such as `db` or `my-db`"
            )
    ports = [service.port for service in services.values() if service.port is not None]
    if len(set(ports)) < len(ports):
        raise ValueError("two services must not use the same port: they share one IP address")
    return services


Services = Annotated[dict[str, Service], AfterValidator(_check_services)]


class Project(Model):
    """Setup, checks and services of a project, at the top level of a configuration file."""

    setup: Annotated[
        Commands,
        Option(
            Group.PROJECT,
            "CMD",
            help="Command to run in the worktree before the agent; repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Commands that prepare the worktree before the agent starts, in a separate container. Files
    they write into the worktree are kept. The commands may run again after an interruption."""
    setup_timeout: Annotated[
        float,
        Option(
            Group.PROJECT,
            "SECONDS",
            help="Seconds for all setup commands, and for all teardown commands; 0: no limit.",
        ),
    ] = Field(default=DEFAULT_TIMEOUT, ge=0, le=LONGEST)
    """Seconds for all `setup` commands together, and for all `teardown` commands together; 0
    disables the limit."""
    teardown: Annotated[
        Commands,
        Option(
            Group.PROJECT,
            "CMD",
            help="Command to run in the worktree after the agent; repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Commands that run in the worktree after the agent, whether it succeeded or not, and before
    its work is committed."""
    checks: Annotated[
        Checks,
        Option(
            Group.COMMON,
            "CMD",
            "--check",
            help="Command that must succeed on a worker's commit, else its result is `partial`; "
            "repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Commands that each worker's commit must pass, in a fresh container and checkout: a command,
    or `run` with `name` and `timeout`. A worker that fails a check is `partial` with the reason
    `checks_failed`."""
    caches: Annotated[
        tuple[CacheKind, ...],
        Option(
            Group.PROJECT,
            "NAME",
            "--cache",
            help="Package manager whose cache workers share: pip, npm, uv or cargo; repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Package managers whose download caches workers share, as filled by `orchestrator cache warm`.
    A worker's own changes to a cache are discarded after it ends."""
    services: Annotated[
        Services,
        Option(
            Group.ENVIRONMENT,
            "NAME=IMAGE",
            "--service",
            help="Image of a service beside each worker, reached at host name NAME; repeatable.",
            repeatable=True,
        ),
    ] = Field(default={})
    """Service containers of each worker, by the host name under which the worker reaches them."""
    dotenv: Annotated[
        str | None,
        Option(
            Group.ENVIRONMENT,
            "FILE",
            help="Write variables of ports and services to this file of each worktree, "
            "such as `.env`.",
        ),
    ] = None
    """Untracked file in each worktree, such as `.env`, to which the variables of the worker's ports
    and services are added."""

    @field_validator("dotenv")
    @classmethod
    def _inside(cls, dotenv: str | None) -> str | None:
        parts = (".env" if dotenv is None else dotenv).split("/")
        if not all(_FILE_NAME.fullmatch(part) for part in parts) or {".", "..", ".git"} & {*parts}:
            raise ValueError(
                "the file must be a path in the worktree, of letters, digits, `.`, `_` and `-`"
            )
        return dotenv

    @field_validator("caches")
    @classmethod
    def _each_once(cls, caches: tuple[CacheKind, ...]) -> tuple[CacheKind, ...]:
        return tuple(dict.fromkeys(caches))
