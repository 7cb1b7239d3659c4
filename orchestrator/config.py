"""What a run is asked to do: frozen, validated, with every default in one place."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from orchestrator.presets import PRESETS, Preset
from orchestrator.results import Reason

BASE_IMAGE = "orchestrator/base:latest"
"""git and Python: what `shell` tasks run in, and what harvests every worker's work."""
PROJECT_IMAGES = "orchestrator/project"
"""The repository of images that are made from a project's own Dockerfile."""

DEFAULT_TIMEOUT = 600.0
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)i?b?", re.IGNORECASE)
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(=@[^\0]+)?")
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def parse_size(value: object) -> object:
    """Read `512m`, `4g` or `1.5GiB` as bytes (powers of 1024); leave numbers alone."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size is a number and a unit, such as 512m or 4g")
    return int(float(match["number"]) * _UNITS[match["unit"].lower()])


_AGES = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_AGE = re.compile(r"[0-9]{1,5}[smhd]")


def parse_age(text: str) -> timedelta:
    """Read `90s`, `15m`, `6h` or `2d`.

    Raises:
        ValueError: The text is something else.
    """
    if not _AGE.fullmatch(text):
        raise ValueError("an age is a whole number and a unit, such as 15m, 6h or 2d")
    return int(text[:-1]) * _AGES[text[-1]]


def _age(text: str) -> str:
    parse_age(text)
    return text


Age = Annotated[
    str,
    AfterValidator(_age),
    WithJsonSchema({"type": "string", "pattern": f"^{_AGE.pattern}$"}),
]


def worker_image(agent: str) -> str:
    """Name the image that workers with this agent program run in."""
    return f"orchestrator/worker:{agent}"


def image_hint(image: str) -> str:
    """Say what to do when the engine does not have an image."""
    agent = "shell" if image == BASE_IMAGE else image.removeprefix(worker_image(""))
    if agent != image:
        return f"`orchestrator image build --agent {agent}` makes it"
    if image.startswith(PROJECT_IMAGES):
        return "`orchestrator image build --from PATH` makes the images of projects"
    return "pull or build it"


DEFAULT_IMAGE = worker_image("architect")
"""What the `architect` agent runs in."""

IS_SIZE = "x-size"
"""Marks, in JSON Schema, a number of bytes that may be given as `512m` too."""
Size = Annotated[int, BeforeValidator(parse_size), Field(json_schema_extra={IS_SIZE: True})]

Port = Annotated[int, Field(ge=1, le=65535)]
_PORT_NAMES = ("PORT", "API_PORT")
_PORT_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,50}")


def name_ports(value: object) -> object:
    """Read `[3000, 3010]` as `{PORT: 3000, API_PORT: 3010}`; an item may be `NAME=3000`."""
    if not isinstance(value, (list, tuple)):
        return value
    named: dict[str, object] = {}
    for place, item in enumerate(value):
        name, equals, port = item.partition("=") if isinstance(item, str) else ("", "", item)
        if not equals:
            name, port = (*_PORT_NAMES, f"PORT_{place + 1}")[min(place, len(_PORT_NAMES))], item
        if name in named:
            raise ValueError(f"`{name}` is there twice")
        named[name] = port
    return named


def _usable_ports(ports: dict[str, int]) -> dict[str, int]:
    for name in ports:
        if not _PORT_NAME.fullmatch(name) or "PORT" not in name:
            raise ValueError("a port's variable is in capitals and holds `PORT`, as `API_PORT`")
    if len(set(ports.values())) < len(ports):
        raise ValueError("a port is there twice")
    return ports


_PORT_SCHEMA = {"type": "integer", "minimum": 1, "maximum": 65535}
Ports = Annotated[
    dict[str, Port],
    Field(max_length=10),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": _PORT_SCHEMA, "maxItems": 10},
                {"type": "object", "additionalProperties": _PORT_SCHEMA, "maxProperties": 10},
            ]
        }
    ),
    BeforeValidator(name_ports),
    AfterValidator(_usable_ports),
]


def _command(text: str) -> str:
    if not text.strip():
        raise ValueError("a command must not be empty")
    if "\0" in text:
        raise ValueError("a command must not contain NUL")
    return text


Commands = tuple[Annotated[str, AfterValidator(_command)], ...]
"""Command lines for `sh`."""


StageKey = Literal["setup", "teardown", "checks"]
"""Keys of a file whose commands run before or after an agent."""
CacheKind = Literal["pip", "npm", "uv", "cargo"]


class Model(BaseModel):
    """What somebody wishes: frozen, and nothing in it that nobody asked for."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        # The text of an error is printed where it came from, and an input may be a secret.
        hide_input_in_errors=True,
    )


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


class Triggers(Model):
    """When somebody should look at a worker."""

    silence: float = Field(default=0.0, ge=0)
    """Seconds without output; 0 is never."""
    repeated_errors: int = Field(default=0, ge=0)
    """Times that an error line may come, numbers in it aside; 0 is any."""
    prompts: float = Field(default=0.0, ge=0)
    """Seconds of silence behind what reads like a question, such as `(y/n)`; 0 is never."""
    paths: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Where it is to make changes: `src`, `docs/*.md`, as in a `.gitignore`. A worker with changes
    elsewhere is `partial` (`out_of_scope`). Empty: anywhere."""
    on_trigger: Literal["warn", "stop"] = "warn"
    """`stop`: the worker is stopped for it, and its work is kept."""
    notify: str | None = Field(default=None, min_length=1)
    """A command of yours, run without a shell, that gets a JSON object on stdin; or a URL that the
    object is posted to. Told are triggers, failed workers and the end of the run."""


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
    """Give what a service's variables begin with: `MY_DB` of `my-db`."""
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


class RateLimit(Model):
    """A bucket of starts: each worker takes one out, and it fills up again."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    enabled: bool = True
    """`false`: as if it were not there."""
    capacity: int = Field(default=100, ge=1)
    """Workers that may start at one moment, when none did before."""
    refill_rate: float = Field(default=10.0, gt=0)
    """Workers a second that may start from then on."""


class Provider(Model):
    """Whoever answers for models."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    rate_limit: RateLimit | None = None
    """How fast workers may start that use it."""


_PROVIDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")


MOST_WORKERS = 10
"""Workers at one time, unless `max_workers` says otherwise."""
MOST_EVER = 1000
"""What `max_workers` may say at most."""
AUTO = "auto"
_WORKERS_SCHEMA = {
    "anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_EVER}, {"const": AUTO}]
}


class ParallelConfig(Model):
    """One run of `orchestrator parallel`."""

    tasks: tuple[str, ...] = Field(min_length=1)
    """What to do, one per worker; the first is repeated when there are more workers."""
    model: str | None = Field(default=None, min_length=1)
    """Model of the workers that `models` does not reach. Default: the agent program's own."""
    models: tuple[str, ...] = ()
    """Model of worker 1, 2, ...; workers beyond the list use `model`."""
    max_workers: int = Field(default=MOST_WORKERS, ge=1, le=MOST_EVER)
    """The most that `workers` may be."""
    workers: Annotated[int, WithJsonSchema(_WORKERS_SCHEMA)] = Field(
        default=3, ge=1, validate_default=True
    )
    """Workers at one time (1-10, or as `max_workers` says), or `auto`: as many as this machine has
    room for."""
    auto_workers: bool = False
    """Whether `workers` was `auto`: a worker then starts when the machine has what it may use. Made
    by the settings, and no key of a file."""
    agent: str = Field(default="build", min_length=1)
    """The profile given to the agent program."""
    agent_cli: str = "architect"
    """The agent program, such as `architect` or `claude`; `shell` runs each task as a command."""
    max_steps: int = Field(default=50, ge=1)
    """Steps an agent may take."""
    budget_per_worker: float | None = Field(default=None, gt=0)
    """USD. Default: no limit."""
    tokens_per_worker: int | None = Field(default=None, gt=0)
    """Tokens, in and out. Default: no limit."""
    budget_total: float | None = Field(default=None, gt=0)
    """USD for all workers together: each is given its share of what is left. Default: no limit."""
    tokens_total: int | None = Field(default=None, gt=0)
    """Tokens for all workers together, given out in the same way. Default: no limit."""
    timeout_per_worker: float = Field(default=DEFAULT_TIMEOUT, ge=0)
    """Seconds; 0 is none."""
    image: str | None = None
    """Container image. Default: the one for the agent program."""
    api_base: str | None = None
    """Base URL of the model's API."""
    base: str = "HEAD"
    """Commit the workers start from."""
    include_uncommitted: bool = False
    """Carry uncommitted and untracked files of the checkout over to the workers."""
    context: str | None = Field(default=None, min_length=1)
    """A text file that every worker can read, where `ORCHESTRATOR_CONTEXT` says; in a configuration
    file its path is from the repository's top."""
    max_worktrees: int = Field(default=20, ge=1)
    """Worktrees of workers that the repository may have when a run starts, with those of earlier
    runs and of its first workers; else it is refused. Tasks beyond `workers` wait without a
    bound."""
    retention: Age | None = None
    """Age after which workers that are merged and have nothing uncommitted are removed when a run
    starts, and by `orchestrator gc`: `90s`, `15m`, `6h`, `2d`. Default: nothing is removed."""
    retries: int = Field(default=0, ge=0, le=10)
    """How often a worker that failed is started again, for reasons that may pass."""
    retry_delay: float = Field(default=5.0, ge=0)
    """Seconds before that."""
    retry_on: tuple[Reason, ...] = ()
    """Reasons to start it again for, beside those that are by themselves."""
    retry_from: Literal["base", "keep"] = "base"
    """`base`: it starts from where the run did. `keep`: from what its last attempt committed."""
    rate_limit_wait: float = Field(default=3600.0, ge=0, le=86_400)
    """Seconds in all that a worker waits for a model's API which refuses further requests, with no
    other start meanwhile that uses the same provider; that uses up none of its `retries`. 0: such
    a worker has failed, and only `retries` start it again."""
    stagger: float = Field(default=0.0, ge=0)
    """Seconds between the start of one worker and the next, at least."""
    fail_fast: bool = False
    """Cancel all other workers as soon as one has failed for good."""
    fail_on: Literal["any", "all"] = "any"
    """`all`: the exit code is 0 as soon as one worker succeeded."""
    preset: Preset | None = None
    """Defaults for a kind of work, which everything else that is given overrides. `untrusted`:
    closed and small. `ci`: for builds and tests. `trusted`: generous."""
    providers: dict[str, Provider] = Field(default={})
    """Who answers for models, by name: `claude` or `claude-code`, `gemini` or `gemini-cli`, and so
    on with every agent program; or what stands before the `/` of a model's name."""
    closed_stages: tuple[StageKey, ...] = ()
    """Stages whose commands nobody vouches for, as those of a configuration file found in the
    repository: they get no variables, no secrets, and a network only by `setup_network` or
    `check_network`."""
    limits: Limits = Limits()
    isolation: Isolation = Isolation()
    triggers: Triggers = Triggers()
    project: Project = Project()

    @field_validator("workers")
    @classmethod
    def _not_too_many(cls, workers: int, info: ValidationInfo) -> int:
        most = info.data.get("max_workers", MOST_WORKERS)
        if workers > most and "max_workers" in info.data:
            raise ValueError(f"must be a whole number from 1 to {most} or `{AUTO}`")
        return workers

    @field_validator("tasks")
    @classmethod
    def _no_empty_task(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        if any(not task.strip() for task in tasks):
            raise ValueError("a task must not be empty")
        if any("\0" in task for task in tasks):
            raise ValueError("a task must not contain NUL")
        return tasks

    @field_validator("providers")
    @classmethod
    def _named_as_models_are(cls, providers: dict[str, Provider]) -> dict[str, Provider]:
        if not all(_PROVIDER_NAME.fullmatch(name) for name in providers):
            raise ValueError("a name is of letters, digits, `.`, `_` and `-`, such as `gemini-cli`")
        return providers

    @field_validator("models")
    @classmethod
    def _no_empty_model(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        if any(not model.strip() for model in models):
            raise ValueError("a model name must not be empty")
        return tuple(model.strip() for model in models)

    @field_validator("retry_on")
    @classmethod
    def _cancelled_is_for_good(cls, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
        if Reason.CANCELLED in reasons:
            raise ValueError("what was cancelled is not started again")
        return reasons

    @model_validator(mode="after")
    def _fill_in_the_preset(self) -> "ParallelConfig":
        if self.preset is None:
            return self
        # In place: an instance that is being made cannot be exchanged for another.
        parts = PRESETS[self.preset]
        self.__dict__.update(_not_given(self, parts["run"]))
        for name, part in (("limits", self.limits), ("isolation", self.isolation)):
            self.__dict__[name] = part.model_copy(update=_not_given(part, parts[name]))
        return self

    @model_validator(mode="after")
    def _ports_need_a_network(self) -> "ParallelConfig":
        if self.isolation.ports and self.isolation.network == "none":
            raise ValueError("ports cannot be published with network none")
        return self

    @model_validator(mode="after")
    def _ports_are_not_those_of_services(self) -> "ParallelConfig":
        for name, service in self.project.services.items():
            variable = f"{variable_prefix(name)}_PORT"
            if variable in self.isolation.ports:
                raise ValueError(f"`{variable}` is the port of service `{name}`")
            if service.port in self.isolation.ports.values():
                raise ValueError(f"port {service.port} is that of service `{name}`")
        return self

    @property
    def timeout(self) -> float | None:
        """Seconds a worker may run, or None."""
        return self.timeout_per_worker or None

    @property
    def setup_network(self) -> Network:
        """The network of the `setup` commands."""
        own: Network = "none" if "setup" in self.closed_stages else self.isolation.network
        return self.isolation.setup_network or own

    @property
    def teardown_network(self) -> Network:
        """The network of the `teardown` commands."""
        return "none" if "teardown" in self.closed_stages else self.isolation.network

    @property
    def networks(self) -> frozenset[Network]:
        """The networks that containers of this run have."""
        found = {self.isolation.network}
        if self.project.setup:
            found.add(self.setup_network)
        if self.project.checks:
            found.add(self.isolation.check_network)
        return frozenset(found)


def _not_given(model: BaseModel, values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name not in model.model_fields_set}


def repository_config_files(top: Path) -> tuple[Path, ...]:
    """Where a repository's own configuration may be, the first that exists wins."""
    return (top / "orchestrator.yaml", top / ".orchestrator" / "config.yaml")
