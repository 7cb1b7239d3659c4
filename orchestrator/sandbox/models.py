"""What callers say of a sandbox, and what they get back: limits, submissions, results."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from orchestrator.base.results import Reason
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.option import Group, Option
from orchestrator.config.settings.values import (
    NAME_RULE,
    VARIABLE_NAME,
    Cpus,
    Memory,
    Model,
    Pids,
    Seconds,
    Size,
)

WORKSPACE = "/workspace"
"""Working directory of every command, and the only directory on disk that it can write to."""
DEFAULT_TTL = 600.0
"""Seconds that a sandbox lives unless the caller says otherwise."""


class EndReason(StrEnum):
    """Why a command ended."""

    EXITED = "exited"
    """The command ended by itself, with its exit code."""
    TIMEOUT = "timeout"
    IDLE = "idle"
    """The command printed nothing for too long."""
    OOM = "oom"
    """The kernel killed it at the limit of memory."""
    PIDS = "pids"
    DISK = "disk"
    INODES = "inodes"
    OUTPUT = "output"
    """The command printed more than the limit of output."""
    KILLED = "killed"
    """The caller stopped the command or the sandbox, or a signal ended it from outside."""
    EXPIRED = "expired"
    """The time to live of the sandbox was over."""
    ENGINE_LOST = "engine_lost"
    """The container is gone, or the engine failed; the result may be incomplete."""


REASONS: Mapping[Reason, EndReason] = {
    Reason.TIMEOUT: EndReason.TIMEOUT,
    Reason.IDLE: EndReason.IDLE,
    Reason.PIDS: EndReason.PIDS,
    Reason.DISK: EndReason.DISK,
    Reason.INODES: EndReason.INODES,
    Reason.LOG_LIMIT: EndReason.OUTPUT,
    Reason.CANCELLED: EndReason.KILLED,
}
"""The reasons of the supervisor of containers, as those of commands."""


class SandboxLimits(Limits):
    """Limits of a sandbox. Sizes are bytes, or text such as `128m`; times are seconds."""

    cpus: Annotated[Cpus | None, Option(Group.LIMITS, "N", default="no limit")] = None
    """CPUs of all processes together. Default: no limit."""
    memory: Annotated[Memory, Option(Group.LIMITS, "SIZE")] = 512 * 1024**2
    """Memory of all processes together. There is no swap."""
    pids: Annotated[Pids, Option(Group.LIMITS, "N")] = 256
    """Processes and threads."""
    tmp: Size = Field(default=256 * 1024**2, ge=1024**2)
    """Size of `/tmp`, and of the home directory. Each counts as memory."""
    disk: Annotated[Size, Option(Group.LIMITS, "SIZE")] = Field(default=1024**3, ge=1024**2)
    """Bytes that may be written to `/workspace`."""
    inodes: Annotated[int, Option(Group.LIMITS, "N")] = Field(default=100_000, ge=100, le=10**12)
    """Files and directories that may be created in `/workspace`."""
    log_limit: Annotated[Size, Option(Group.LIMITS, "SIZE", "--output-limit")] = Field(
        default=16 * 1024**2, ge=1024
    )
    """Bytes of output of a command, stdout and stderr together. What exceeds it ends the command.
    """
    grace: Annotated[Seconds, Option(Group.LIMITS, "SECONDS")] = 1.0
    """Seconds between SIGTERM and SIGKILL when a command is stopped."""


def _decoded(value: object) -> object:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        if value.keys() != {"base64"} or not isinstance(value["base64"], str):
            raise ValueError('contents must be text, or {"base64": "..."}')
        try:
            return b64decode(value["base64"], validate=True)
        except ValueError as error:
            raise ValueError(f"contents are not base64: {error}") from error
    return value


def _encoded(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


Content = Annotated[
    bytes,
    BeforeValidator(_decoded),
    PlainSerializer(_encoded, when_used="json"),
    WithJsonSchema({
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"base64": {"type": "string"}},
             "required": ["base64"], "additionalProperties": False},
        ]
    }),
]  # fmt: skip
"""Bytes, which JSON has as text if they are UTF-8, and else as `{"base64": "..."}`."""


def _inside(path: str) -> str:
    """Return a path of a file in the workspace, which must stay there."""
    found = PurePosixPath(path)
    if found.is_absolute():
        found = found.relative_to(WORKSPACE) if found.is_relative_to(WORKSPACE) else found
    # protection: files-of-submissions-stay-in-workspace
    if found.is_absolute() or ".." in found.parts or not found.parts or "\0" in path:
        raise ValueError(f"a file must lie in {WORKSPACE}, without `..`: {path!r}")
    return str(found)


FilePath = Annotated[str, AfterValidator(_inside)]
"""Path of a file in the workspace: relative, or below `/workspace`."""


def _usable(env: Mapping[str, str]) -> Mapping[str, str]:
    if not all(map(VARIABLE_NAME.fullmatch, env)):
        raise ValueError(f"a variable's name is not usable: {NAME_RULE}")
    if any("\0" in value for value in env.values()):
        raise ValueError("a variable's value must not contain NUL")
    return env


Environment = Annotated[Mapping[str, str], AfterValidator(_usable)]
Command = Annotated[tuple[Annotated[str, Field(max_length=128 * 1024)], ...], Field(min_length=1)]
"""A command and its arguments; no shell interprets them."""


NetworkKind = Literal["none", "allowlist", "open"]


class Template(Model):
    """How sandboxes are made. Equal templates make equal sandboxes."""

    image: Annotated[str, Option(Group.COMMON, "IMAGE")] = Field(
        default="orchestrator/base:latest", min_length=1
    )
    """Image with a POSIX shell. Its entrypoint and its command are not used."""
    limits: SandboxLimits = SandboxLimits()
    env: Environment = Field(default_factory=dict)
    """Variables of all commands."""
    runtime: Annotated[str | None, Option(Group.ISOLATION, "NAME")] = None
    """OCI runtime such as `runsc`. Default: the engine's."""
    network: Annotated[
        NetworkKind,
        Option(
            Group.ISOLATION,
            "none|allowlist|open",
            help="Commands reach nothing, only hosts of `--allow`, or the internet.",
        ),
    ] = "none"
    """What commands reach outside of the sandbox: nothing, the hosts of `allow` alone, or public
    addresses. Never this machine, private networks or other sandboxes, unless `allow` names them.
    The network is closed in this way before the sandbox's first instruction.
    """
    allow: Annotated[
        tuple[str, ...],
        Option(
            Group.ISOLATION,
            "HOST[:PORT]",
            help="Host that commands may reach; `--network open` needs it for private hosts only; "
            "repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Hosts, as those of workers. With `allowlist`, these and no others: `HOST[:PORT]`,
    `*.DOMAIN[:PORT]`, `http://HOST[:PORT]` or a set such as `@pip`, each with `=NETWORK` if it lies
    in a private network. With `open`, private hosts in addition to the public ones: `HOST[:PORT]`,
    where the host is a name, an IPv4 address or network. `host.docker.internal` is this machine.
    """

    root: Annotated[
        Literal["read-only", "writable"], Option(Group.ISOLATION, "read-only|writable")
    ] = "read-only"
    """Whether commands can change the image's files, of which each sandbox then has its own layer.
    It counts toward the limit on disk and, if the caller is root of the engine's machine, on files.
    """
    user: Annotated[Literal["sandbox", "root"], Option(Group.ISOLATION, "sandbox|root")] = "sandbox"
    """User of the commands: an ordinary user of this sandbox, or root with the few capabilities
    that package managers need, which cannot get more. Root needs a writable root. Its `/workspace`
    is in the sandbox's layer and never on this machine, so that no file of root lies here: it has
    no snapshots, and submissions return no files.
    """

    @model_validator(mode="after")
    def _usable_root(self) -> Self:
        if self.user == "root" and self.root != "writable":
            raise ValueError("with this `user`, `root` must be `writable`")
        return self

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.allow and self.network == "none":
            raise ValueError("`allow` names a host, but `network` is `none`")
        if not self.allow and self.network == "allowlist":
            raise ValueError("`network` is `allowlist`, but `allow` is empty")
        return self


class Submission(Model):
    """A command that runs once, in a sandbox of its own, with its files and its input."""

    id: str = Field(default="", max_length=200)
    """Name of the submission in its result."""
    command: Command
    files: Annotated[
        Mapping[FilePath, Content],
        Option(
            Group.COMMON,
            "SRC[:DST]",
            "--file",
            help="Your file SRC, which the command gets as DST in /workspace; repeatable.",
            repeatable=True,
        ),
    ] = Field(default_factory=dict)
    """Contents of files in the workspace, by path."""
    stdin: Annotated[
        Content,
        Option(
            Group.COMMON,
            "FILE",
            help="File that the command reads as its standard input; `-`: your own.",
            default="no input",
        ),
    ] = b""
    env: Annotated[
        Environment,
        Option(
            Group.ENVIRONMENT,
            "K[=V]",
            help="Variable; `K` alone passes your variable on; repeatable.",
            repeatable=True,
        ),
    ] = Field(default_factory=dict)
    timeout: Annotated[Seconds, Option(Group.LIMITS, "SECONDS")] = Field(default=60.0, gt=0)
    """Seconds after which the command is stopped, with everything that it started."""
    out: Annotated[
        tuple[FilePath, ...],
        Option(
            Group.OUTPUT,
            "PATH[:DST]",
            help="File in /workspace that is copied to DST, or its name, at the end; repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Files in the workspace that the result contains, if the command wrote them."""


class Finished(Model):
    """How a command ended."""

    id: str = ""
    """Name of the submission."""
    exit_code: int | None
    """Exit code, 128 plus the number of a signal; None if the command never ran, or if its end was
    not observed.
    """
    reason: EndReason
    message: str | None = None
    """What was measured, if the command did not end by itself."""
    stdout: Content = b""
    stderr: Content = b""
    truncated: bool = False
    """Whether there was more output than the limit, which is lost."""
    wall: float = 0.0
    """Seconds from start to end."""
    cpu_time: float | None = None
    """Seconds of CPU time, of all processes."""
    peak_memory: int | None = None
    """Largest memory in use at once, in bytes, of all processes."""
    uncounted: str | None = None
    """Why `cpu_time` or `peak_memory` is unknown."""
    files: Mapping[str, Content] = Field(default_factory=dict)
    """Contents of the files that the submission asked for."""

    @property
    def ok(self) -> bool:
        """Return whether the command ended by itself with exit code 0."""
        return self.reason is EndReason.EXITED and self.exit_code == 0


class SandboxInfo(Model):
    """A sandbox that lives, or has ended a moment ago."""

    id: str
    image: str
    labels: Mapping[str, str]
    created_at: datetime
    expires_in: float
    """Seconds until the sandbox ends itself."""
