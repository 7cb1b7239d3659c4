"""Settings of a worker's container: limits and isolation."""

import re
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from orchestrator.config.settings.option import Group, Option
from orchestrator.config.settings.values import (
    NAME_RULE,
    VARIABLE_NAME,
    Cpus,
    Limit,
    Memory,
    Model,
    OpenFiles,
    Pids,
    Ports,
    PrivateRepository,
    Seconds,
    Size,
    parse_entries,
    parse_prices,
)

_SET = re.compile(r"[a-z][a-z0-9-]{0,49}")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(=@[^\0]+)?")


AGENT_CONFIG = "/run/secrets/agent-config"
"""Path of the agent program's configuration file in a worker's container. No secret has this name.
"""


class Limits(Model):
    """Resource limits of one worker."""

    cpus: Annotated[
        Cpus | None, Option(Group.LIMITS, "N", default="2, or fewer on a smaller machine")
    ] = None
    """Number of CPUs of each worker. Default: 2, or all CPUs of a smaller machine."""
    memory: Annotated[Memory, Option(Group.LIMITS, "SIZE")] = 4 * 1024**3
    """Memory of each worker, in bytes or with a unit such as `512m`. Swap is disabled."""
    pids: Annotated[Pids, Option(Group.LIMITS, "N")] = 512
    """Maximum number of processes and threads of each worker."""
    open_files: OpenFiles = 4096
    """Maximum number of open files of each process in a worker."""
    tmp: Size = Field(default=1024**3, ge=1024**2)
    """Size in bytes of `/tmp`, and of the home directory. Each counts as memory of the worker."""
    disk: Annotated[Size, Option(Group.LIMITS, "SIZE")] = Field(default=8 * 1024**3, ge=1024**2)
    """Maximum size of each worker's files on disk, in bytes or with a unit such as `2g`. The
    worker's worktree and private git directory count.
    """
    inodes: Annotated[int, Option(Group.LIMITS, "N")] = Field(default=1_000_000, ge=100, le=10**12)
    """Maximum number of files and directories that each worker may create. The worker's worktree
    and private git directory count.
    """
    log_limit: Annotated[Size, Option(Group.LIMITS, "SIZE")] = Field(default=1024**3, ge=64 * 1024)
    """Maximum size of each worker's output, in bytes or with a unit such as `100m`."""
    idle_timeout: Annotated[Seconds, Option(Group.LIMITS, "SECONDS")] = 0.0
    """Seconds without output after which a worker is stopped; 0 disables the check."""
    grace: Annotated[Seconds, Option(Group.LIMITS, "SECONDS")] = 10.0
    """Seconds that a worker may take to end (SIGTERM to SIGKILL) when it is stopped."""


Network = Literal["none", "allowlist", "learn", "open"]
Keys = Literal["env", "broker"]
Transfer = Literal["auto", "mounts", "streams"]
NETWORKS: tuple[Network, ...] = get_args(Network)
"""Values of the setting `network`, the most restrictive first."""


GATEWAYS: frozenset[Network] = frozenset({"allowlist", "learn"})
"""Values of the setting `network` with which each worker has a gateway of its own."""
_CHOICES = "|".join(NETWORKS)


CLUSTERS = frozenset({"kubernetes"})
"""Engines whose own scheduler lets workers wait for room."""


class Isolation(Model):
    """Isolation of a worker's container: network, mounts, environment."""

    network: Annotated[
        Network,
        Option(
            Group.ISOLATION,
            _CHOICES,
            help="Workers reach nothing, only hosts of `--allow`, any web host (reported), or "
            "the internet.",
        ),
    ] = "open"
    """Network access of workers: `none`, `allowlist` for the hosts of `allow` alone, `learn` for
    all public hosts at ports 80 and 443, with a list of the reached hosts at the end of the run, or
    `open` for the public internet. With `open`, workers do not reach this machine, private networks
    or other workers."""
    setup_network: Annotated[Network | None, Option(Group.ISOLATION, _CHOICES)] = None
    """Network of the setup commands, with the same values as `--network`. Default: same network."""
    check_network: Annotated[Network, Option(Group.ISOLATION, _CHOICES)] = "none"
    """Network of the checks; the values are the same as for `--network`."""
    allow: Annotated[
        tuple[str, ...],
        Option(
            Group.ISOLATION,
            "HOST[:PORT]",
            help="Host that workers may reach; `--network open` needs it for private hosts only; "
            "repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Hosts that workers may reach. With `network: allowlist`, these and no others: `HOST[:PORT]`,
    `*.DOMAIN[:PORT]`, `http://HOST[:PORT]`, `@SET`, each with `=NETWORK` if it lies in a private
    network.
    With `open`, in addition to the internet: `HOST[:PORT]`, where the host is a name, an IPv4
    address or network. `host.docker.internal` is this machine. The base URLs of the model's API
    are always allowed."""
    setup_allow: Annotated[
        tuple[str, ...],
        Option(
            Group.ISOLATION,
            "HOST[:PORT]",
            help="Host that setup commands may reach, in place of hosts of `--allow`; repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Hosts that the setup commands may reach, in place of `allow`. Default: those of
    `allow`, unless either the setup commands or the worker have an open network."""
    check_allow: Annotated[
        tuple[str, ...],
        Option(
            Group.ISOLATION,
            "HOST[:PORT]",
            help="Host that checks may reach, in place of the hosts of `--allow`; repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Hosts that the checks may reach, in place of `allow`. Default: those of `allow`,
    unless either the checks or the worker have an open network."""
    allow_sets: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Own sets of hosts, by name: `allow: ["@NAME"]` stands for all hosts of the set. The sets
    `pip`, `npm`, `cargo`, `go`, `apt` and `git` are read from the configuration of these tools on
    this machine, unless they are defined here."""
    keys: Annotated[
        Keys,
        Option(
            Group.ISOLATION,
            "env|broker",
            help="Give API keys to workers (`env`), or only to a proxy that they use (`broker`).",
        ),
    ] = "env"
    """Where the API keys of models are. `env`: the agent program gets them as variables. `broker`:
    they stay in the run's credential broker, and a worker gets a token that is of no use elsewhere.
    """
    key_models: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Option(
            Group.ISOLATION,
            "CSV",
            help="Models that workers may call with `--keys broker`: patterns such as `gpt-*`.",
        ),
    ] = ()
    """Models that workers may call through the broker, as patterns such as `claude-*`. Default: all
    models; with a budget, all models with a known price."""
    prices: Annotated[
        tuple[str, ...],
        Option(
            Group.LIMITS,
            "MODEL=IN/OUT",
            "--price",
            help="Price of a model for `--keys broker`, in USD per million tokens; repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Prices of models for `keys: broker`, in USD per million tokens of input and output, such as
    `gpt-x=2.5/10`. They are used in place of the broker's price list, which may not have the newest
    models. A budget needs a known price."""
    calls_per_minute: Annotated[
        int,
        Option(
            Group.LIMITS,
            "N",
            help="Maximum model calls of each worker per minute with `--keys broker`; 0: no limit.",
        ),
    ] = Field(default=0, ge=0, le=1_000_000)
    """Calls that each worker may make through the broker in one minute; 0: no limit."""
    git_read: Annotated[
        tuple[str, ...],
        Option(
            Group.ISOLATION,
            "URL=VARIABLE",
            help="Private repository that workers may clone, and the variable with its token; "
            "repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Private repositories that workers may read with git: `https://HOST/PATH=VARIABLE`, or
    `https://HOST/PATH/*=VARIABLE` for all below a path. The token in your variable stays in the
    credential broker, which refuses every push. This setting needs `keys: broker`."""
    company: Annotated[
        tuple[str, ...],
        Option(
            Group.ISOLATION,
            "NAME=VALUE",
            help="Company's mirror (`pip`, `npm`, `go`), `proxy`, or `ca` file of authorities; "
            "repeatable.",
            repeatable=True,
        ),
    ] = ()
    """A company's network, for workers, `setup` and checks that have a network: `pip=URL`,
    `npm=URL` and `go=URL` name mirrors, `proxy=URL` a proxy for open networks, `ca=FILE`
    certificate authorities. A URL with a password must be in a variable: `pip=VARIABLE`."""
    read_only: Annotated[bool, Option(Group.ISOLATION)] = False
    """Mount worktrees read-only, so that workers can neither change nor commit files. A worker can
    then write only to `/tmp`, its home directory and its caches. The `setup` commands can still
    write to the worktree.
    """
    runtime: Annotated[str | None, Option(Group.ISOLATION, "NAME")] = None
    """OCI runtime of the containers, such as `runsc`; the container engine must have it. With the
    engine `kubernetes`, the name of a RuntimeClass. Default: the engine's default.
    """
    allow_unenforced: Annotated[
        tuple[Limit, ...],
        Option(
            Group.ISOLATION,
            "NAME,...",
            help="Start although the engine does not enforce these limits, such as `swap`.",
        ),
    ] = ()
    """Limits without which runs may start if the engine does not enforce them; otherwise such runs
    are refused. The results name them in `limits_unenforced`. `orchestrator doctor` lists all
    limits.
    """
    engine: Annotated[
        str,
        Option(Group.ISOLATION, "NAME", help="Engine of the workers: `docker`, or `kubernetes`."),
    ] = Field(default="docker", pattern=r"^[a-z][a-z0-9-]{0,40}$")
    """Engine of the workers: `docker`, which is also Podman, or `kubernetes`, the cluster and the
    namespace of kubectl's current context, which needs the extra `kubernetes`."""
    transfer: Annotated[
        Transfer,
        Option(
            Group.ISOLATION,
            "auto|mounts|streams",
            help="Mount files of this machine in workers, or send copies of them to the engine.",
        ),
    ] = "auto"
    """How files get into workers. `mounts`: containers mount files of this machine. `streams`:
    copies are sent to volumes of the engine, and commits are fetched from there. `auto`: streams if
    a test shows that containers cannot use files of this machine, otherwise mounts."""
    history: Literal["full", "shallow"] = "full"
    """`full`: workers get the whole history of the base commit. `shallow`: only the base commit,
    which is faster for a large repository."""
    env: Annotated[
        dict[str, str],
        Option(
            Group.ENVIRONMENT,
            "K[=V]",
            help="Environment variable of workers; `K` alone passes your variable on; repeatable.",
            repeatable=True,
        ),
    ] = Field(default_factory=dict)
    """Environment variables of the worker's container, in addition to the agent's own."""
    secrets: Annotated[
        tuple[str, ...],
        Option(
            Group.ENVIRONMENT,
            "NAME[=@FILE]",
            "--secret",
            help="Your variable NAME, or FILE, which workers get as /run/secrets/NAME; repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Environment variables of the user that each worker receives as files in `/run/secrets`; the
    option also accepts `NAME=@FILE`, for the content of a file. Secret values are redacted from
    everything that a run prints or stores.
    """
    ports: Annotated[
        Ports,
        Option(
            Group.ENVIRONMENT,
            "CSV",
            help="Ports of each worker, such as `3000,3010`, to publish at free ports of "
            "127.0.0.1.",
        ),
    ] = Field(default={})
    """Container ports to publish on 127.0.0.1, each at a different host port per worker: a list, or
    a mapping of variable names to container ports. The ports of a list are named `PORT`,
    `API_PORT`, `PORT_3` and so on."""
    copied: Annotated[
        tuple[str, ...],
        Option(
            Group.ENVIRONMENT,
            "GLOB",
            help="Untracked files to copy into each worktree, such as `.env`; repeatable.",
            repeatable=True,
        ),
    ] = ()
    """Untracked files of the checkout to copy into every worktree; they are never committed.
    Patterns as in `.gitignore`, in addition to those in the file `.worktreeinclude`."""

    @field_validator("git_read")
    @classmethod
    def _repositories(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(PrivateRepository.parse, entries)):
            raise ValueError(
                "a repository must be written as `https://HOST/PATH=VARIABLE`, or with `/*` after "
                "the path; the variable holds the token"
            )
        return entries

    @field_validator("prices")
    @classmethod
    def _usable_prices(cls, prices: tuple[str, ...]) -> tuple[str, ...]:
        parse_prices(prices)
        return prices

    @field_validator("copied")
    @classmethod
    def _one_line_each(cls, copied: tuple[str, ...]) -> tuple[str, ...]:
        if any(not pattern.strip() or set(pattern) & set("\0\n") for pattern in copied):
            raise ValueError("a pattern must be one line that is not empty")
        return copied

    @field_validator("allow_sets")
    @classmethod
    def _usable_sets(cls, sets: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for name, entries in sets.items():
            if not _SET.fullmatch(name):
                raise ValueError(
                    "a set's name must have at most 50 lower-case letters, digits and `-`, and "
                    "begin with a letter"
                )
            if not entries:
                raise ValueError(f"the set of hosts `{name}` is empty")
        return sets

    @field_validator("secrets")
    @classmethod
    def _no_values(cls, secrets: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_SECRET.fullmatch(secret) for secret in secrets):
            raise ValueError(
                "a secret must be written as `NAME` or `NAME=@FILE`, never as its value"
            )
        return secrets

    @property
    def private_repositories(self) -> tuple[PrivateRepository, ...]:
        """Private repositories that the setting `git_read` names, with the variables of tokens."""
        return tuple(filter(None, map(PrivateRepository.parse, self.git_read)))

    @field_validator("company")
    @classmethod
    def _usable_entries(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        parse_entries(entries)
        return entries

    @field_validator("env")
    @classmethod
    def _usable_names(cls, env: dict[str, str]) -> dict[str, str]:
        if not all(map(VARIABLE_NAME.fullmatch, env)):
            raise ValueError(f"a variable's name is not usable: {NAME_RULE}")
        if any("\0" in value for value in env.values()):
            raise ValueError("a variable's value must not contain NUL")
        return env
