"""The configuration of a run: immutable, validated, with all defaults."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from orchestrator.base.results import Reason
from orchestrator.base.text.ages import AGE, parse_age
from orchestrator.base.text.name_templates import (
    BRANCH,
    WORKTREE_DIR,
    check_branch,
    check_worktree_dir,
)
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.config.settings.container import Isolation, Limits, Network
from orchestrator.config.settings.judging import Judging
from orchestrator.config.settings.option import Group, Option
from orchestrator.config.settings.presets import PRESETS, Preset
from orchestrator.config.settings.project import Project, variable_prefix
from orchestrator.config.settings.values import (
    DEFAULT_TIMEOUT,
    LONGEST,
    Count,
    Model,
    Seconds,
    Usd,
    with_unix_lines,
)


def _check_age(text: str) -> str:
    parse_age(text)
    return text


Age = Annotated[
    str,
    AfterValidator(_check_age),
    WithJsonSchema({"type": "string", "pattern": f"^{AGE}$"}),
]

StageKey = Literal["setup", "teardown", "checks"]
"""Keys of settings with commands that run before or after the agent."""


class Triggers(Model):
    """Conditions under which the user is told that a worker needs attention."""

    silence: Annotated[
        float, Option(Group.ALERTS, "SECONDS", "--alert-silence", former="--silence")
    ] = Field(default=0.0, ge=0, le=LONGEST)
    """Alert when a worker prints nothing for this many seconds; 0 disables the alert."""
    repeated_errors: Annotated[
        int, Option(Group.ALERTS, "N", "--alert-errors", former="--repeated-errors")
    ] = Field(default=0, ge=0, le=10**9)
    """Alert when a worker prints the same error line N times; 0 disables the alert. Numbers in
    the line are ignored."""
    prompts: Annotated[
        float, Option(Group.ALERTS, "SECONDS", "--alert-prompt", former="--prompts")
    ] = Field(default=10.0, ge=0, le=LONGEST)
    """Alert if a `(y/n)` question of the agent gets no answer for this many seconds; 0: never."""
    paths: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Option(Group.ALERTS, "CSV", "--alert-outside", former="--paths"),
    ] = ()
    """Alert when a worker changes files outside these paths, such as `src,docs/*.md`. Patterns
    are as in `.gitignore`. A worker that changes other files is `partial` with the reason
    `out_of_scope`. Default: any path may be changed."""
    enforce: Annotated[
        Literal["ro"] | None,
        Option(
            Group.ALERTS,
            "ro",
            help="`ro`: mount the worktree read-only, except directories of `--alert-outside`.",
        ),
    ] = None
    """`ro`: everything in the worktree outside `paths` is mounted read-only, and each path must be
    a directory from the repository's top, without wildcards. Default: changes to other files are
    possible, and are reported."""
    on_trigger: Annotated[
        Literal["warn", "stop"],
        Option(Group.ALERTS, "warn|stop", "--on-alert", former="--on-trigger"),
    ] = "warn"
    """Reaction to an alert: `warn`, or `stop` the worker and keep its work."""
    notify: Annotated[str | None, Option(Group.ALERTS, "COMMAND|URL|desktop")] = Field(
        default=None, min_length=1
    )
    """Command, URL or `desktop` to notify of alerts, failed workers and the run's end. A command
    runs on this machine, without a shell, and reads a JSON object from stdin; a URL receives
    the object by POST, repeated after a temporary failure and signed with the key in the variable
    `ORCHESTRATOR_NOTIFY_SECRET`. `desktop` calls `notify-send`.
    """


class RateLimit(Model):
    """Limit on how fast workers start (a token bucket): each start takes a token."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    enabled: bool = True
    """Whether the limit applies; `false` disables it."""
    capacity: int = Field(default=100, ge=1, le=10**9)
    """Workers that may start at once when the bucket is full."""
    refill_rate: float = Field(default=10.0, ge=1e-6, le=10**9)
    """Tokens added per second: workers that may start per second once the bucket is empty."""


class Provider(Model):
    """Settings for the workers that use one provider of models."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    rate_limit: RateLimit | None = None
    """Limit on how fast workers that use this provider start."""


_PROVIDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")

MOST_WORKERS = 10
"""Default of `max_workers`."""
MOST_EVER = 1000
"""Highest value of `max_workers`."""
AUTO = "auto"
_WORKERS_SCHEMA = {
    "anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_EVER}, {"const": AUTO}]
}


class ParallelConfig(Model):
    """All settings of one run."""

    tasks: Annotated[
        tuple[str, ...],
        Option(
            Group.COMMON,
            "CMD",
            "--task",
            help="Prompt or command for a worker; repeatable.",
            repeatable=True,
        ),
    ] = Field(min_length=1)
    """Tasks, one per worker; the first is repeated if there are more workers."""
    max_workers: int = Field(default=MOST_WORKERS, ge=1, le=MOST_EVER)
    """Highest allowed value of `workers`. With the engine `kubernetes`, the default is 1000."""
    workers: Annotated[
        int,
        WithJsonSchema(_WORKERS_SCHEMA),
        Option(
            Group.COMMON,
            "N",
            help="Maximum number of workers at once: 1-10, more in a cluster; "
            "`auto`: fits this machine.",
        ),
    ] = Field(default=3, ge=1, validate_default=True)
    """Maximum number of workers that run at the same time: 1-10 (or up to `max_workers`), any
    number in a cluster, or `auto` for as many as fit on this machine.
    """
    auto_workers: bool = False
    """Whether `workers` was `auto`: each worker then waits until the machine has the CPUs and
    memory it needs. Set while the settings are loaded; not a key of a configuration file."""
    agent_cli: Annotated[str, Option(Group.COMMON, "NAME")] = "architect"
    """Agent program of the workers, such as `claude`; `shell` runs each task as a command."""
    models: Annotated[tuple[str, ...], Option(Group.COMMON, "CSV")] = ()
    """Models of workers 1, 2, 3 and so on, such as `gpt-4o,claude-sonnet-4-6`. Workers beyond the
    end of the list use `model`."""
    timeout_per_worker: Annotated[Seconds, Option(Group.COMMON, "SECONDS")] = DEFAULT_TIMEOUT
    """Maximum number of seconds that each worker may run; 0 disables the limit."""
    budget_per_worker: Annotated[Usd | None, Option(Group.COMMON, "USD")] = None
    """Maximum cost of each worker in USD. Default: no limit."""
    base: Annotated[str, Option(Group.TASK, "REF")] = "HEAD"
    """Commit that workers start from: a branch, a tag, a hash or another git revision."""
    include_uncommitted: Annotated[bool, Option(Group.TASK)] = False
    """Start workers from the checkout with its uncommitted changes and untracked files."""
    context: Annotated[str | None, Option(Group.TASK, "FILE")] = Field(default=None, min_length=1)
    """Text file for every worker; the variable `ORCHESTRATOR_CONTEXT` has its path. In a
    configuration file, the path of the file is relative to the repository's top."""
    worktree_dir: Annotated[
        str, AfterValidator(check_worktree_dir), Option(Group.TASK, "TEMPLATE")
    ] = WORKTREE_DIR
    """Path of each worker's worktree; `{n}` is its number, `{id}` the id of its task. Without a
    workflow, the id is `worker-N`. The path is relative to the repository's top, absolute, or
    starts with `~/`; it may be outside of the repository, such as `../.worktrees/{id}`."""
    branch: Annotated[str, AfterValidator(check_branch), Option(Group.TASK, "TEMPLATE")] = BRANCH
    """Branch of each worker; `{n}` is its number, `{id}` the id of its task. Example:
    `solve/{id}`."""
    worktrees: Annotated[Literal["start", "end", "none"], Option(Group.TASK, "start|end|none")] = (
        "start"
    )
    """Create worktrees at each worker's `start`, or at its `end` with its result, or never.
    With `end` and `none`, workers share one checkout, which none of them can change and later runs
    use again. The work is on the branches in any case."""
    stagger: Annotated[Seconds, Option(Group.TASK, "SECONDS")] = 0.0
    """Minimum number of seconds between the starts of two workers."""
    model: Annotated[
        str | None,
        Option(
            Group.AGENT,
            "NAME",
            help="Model of each worker that gets none from `--models`.",
        ),
    ] = Field(default=None, min_length=1)
    """Model of each worker that gets none from `models` or from a workflow file. Default: the agent
    program's default."""
    agent: Annotated[str, Option(Group.AGENT, "NAME")] = Field(default="build", min_length=1)
    """Profile, such as `build`, to select in the agent program."""
    max_steps: Annotated[Count, Option(Group.AGENT, "N")] = 50
    """Maximum number of an agent's steps: model answers or tool calls, depending on the agent."""
    api_base: Annotated[str | None, Option(Group.AGENT, "URL")] = None
    """Base URL of the model's API. Default: the agent program's default."""
    agent_config: Annotated[str | None, Option(Group.AGENT, "FILE")] = None
    """Configuration file of the agent program itself, such as that of `architect --config`. Workers
    get it like a secret. A path in a configuration file is relative to the repository's top."""
    image: Annotated[str | None, Option(Group.AGENT, "IMAGE")] = None
    """Container image of the workers, instead of the agent program's own."""
    tokens_per_worker: Annotated[Count | None, Option(Group.LIMITS, "N")] = None
    """Maximum number of input and output tokens of each worker. Default: no limit."""
    budget_total: Annotated[Usd | None, Option(Group.LIMITS, "USD")] = None
    """Maximum cost of all workers together in USD. Each worker that starts gets a share of what is
    left. Default: no limit."""
    tokens_total: Annotated[Count | None, Option(Group.LIMITS, "N")] = None
    """Maximum number of input and output tokens of all workers together. Each worker that starts
    gets a share of what is left. Default: no limit."""
    max_worktrees: Count = 20
    """Maximum number of workers' worktrees, including those of earlier runs; a run that would
    exceed the limit is refused. Tasks that wait for a free worker do not count."""
    retention: Age | None = None
    """Age after which merged workers without uncommitted changes are removed, at the start of a run
    and by `orchestrator gc`: `90s`, `15m`, `6h`, `2d`. Default: workers are kept."""
    retries: Annotated[int, Option(Group.RETRIES, "N")] = Field(default=0, ge=0, le=10)
    """Number of times that a worker is restarted if its agent, setup or container fails."""
    retry_delay: Annotated[Seconds, Option(Group.RETRIES, "SECONDS")] = 5.0
    """Seconds between a failure and the retry."""
    retry_on: Annotated[tuple[Reason, ...], Option(Group.RETRIES, "CSV")] = ()
    """Reasons to retry a worker, such as `timeout,oom`, besides failed agents and setups."""
    retry_from: Annotated[Literal["base", "keep"], Option(Group.RETRIES, "base|keep")] = "base"
    """Commit that a retry starts from: `base`, or `keep` for the failed attempt's commit."""
    rate_limit_wait: Annotated[float, Option(Group.RETRIES, "SECONDS")] = Field(
        default=3600.0, ge=0, le=86_400
    )
    """Total seconds that a worker may wait for a rate-limited API; 0: it fails at once. Meanwhile
    no other worker of the same provider starts. The restart after the wait does not
    count as one of its `retries`.
    With 0 the worker fails, and is started again only by `retries`."""
    fix_checks: Annotated[int, Option(Group.RETRIES, "K")] = Field(default=0, ge=0, le=20)
    """Number of times that failed checks are sent back to the worker, in its session."""
    sessions: Annotated[bool, Option(Group.AGENT)] = True
    """Keep agents' sessions in the run's directory, for `orchestrator continue`."""
    fail_fast: Annotated[bool, Option(Group.RETRIES)] = False
    """Cancel all other workers when a worker has failed and has no retries left."""
    fail_on: Annotated[Literal["any", "all"], Option(Group.RETRIES, "any|all")] = "any"
    """When the run fails: if `any` worker failed, or only if `all` workers failed. With
    `all`, the exit code is 0 if one worker succeeded.
    """
    preset: Annotated[Preset | None, Option(Group.ISOLATION, "NAME")] = None
    """Set of defaults for a kind of work: `untrusted`, `ci` or `trusted`. Options override it, and
    files and tasks cannot go beyond it. `untrusted`: no network and small limits. `ci`: for builds
    and tests. `trusted`: large limits.
    """
    providers: dict[str, Provider] = Field(default={})
    """Settings of providers of models, by name: `claude` or `claude-code`, `gemini` or
    `gemini-cli`, and so on for every agent program; or the part of a model's name before the
    `/`."""
    closed_stages: tuple[StageKey, ...] = ()
    """Stages whose commands are untrusted, because they come from a configuration file discovered
    in the repository. They run without variables and secrets, and without a network unless
    `setup_network` or `check_network` opens it."""
    limits: Limits = Limits()
    isolation: Isolation = Isolation()
    triggers: Triggers = Triggers()
    project: Project = Project()
    judge: Judging = Judging()
    cluster: PodSettings = PodSettings()

    @field_validator("workers")
    @classmethod
    def _not_too_many(cls, workers: int, info: ValidationInfo) -> int:
        most = info.data.get("max_workers", MOST_WORKERS)
        if workers > most and "max_workers" in info.data:
            raise ValueError(f"must be a whole number from 1 to {most} (`max_workers`) or `{AUTO}`")
        return workers

    @field_validator("tasks")
    @classmethod
    def _no_empty_task(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        if any(not task.strip() for task in tasks):
            raise ValueError("a task must not be empty")
        if any("\0" in task for task in tasks):
            raise ValueError("a task must not contain NUL")
        return tuple(map(with_unix_lines, tasks))

    @field_validator("providers")
    @classmethod
    def _check_provider_names(cls, providers: dict[str, Provider]) -> dict[str, Provider]:
        if not all(_PROVIDER_NAME.fullmatch(name) for name in providers):
            raise ValueError(
                "a name must consist of letters, digits, `.`, `_` and `-`, as in `gemini-cli`"
            )
        return providers

    @field_validator("models")
    @classmethod
    def _no_empty_model(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        if any(not model.strip() for model in models):
            raise ValueError("a model name must not be empty")
        return tuple(_no_option(model.strip()) for model in models)

    @field_validator("model", "agent")
    @classmethod
    def _no_option(cls, name: str | None) -> str | None:
        return name if name is None else _no_option(name)

    @field_validator("retry_on")
    @classmethod
    def _check_retry_reasons(cls, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
        if Reason.CANCELLED in reasons:
            raise ValueError("a cancelled worker cannot be retried")
        return reasons

    @model_validator(mode="after")
    def _fill_in_the_preset(self) -> "ParallelConfig":
        if self.preset is None:
            return self
        # Changed in place, because a validator cannot return a different instance.
        parts = PRESETS[self.preset]
        self.__dict__.update(_not_given(self, parts["run"]))
        for name, part in (("limits", self.limits), ("isolation", self.isolation)):
            values = dict(parts[name])
            if self.preset == "untrusted" and name == "isolation" and self.isolation.allow:
                # Without a list, the preset has no network at all.
                values["network"] = "allowlist"
            self.__dict__[name] = part.model_copy(update=_not_given(part, values))
        return self

    @model_validator(mode="after")
    def _ports_are_not_those_of_services(self) -> "ParallelConfig":
        for name, service in self.project.services.items():
            variable = f"{variable_prefix(name)}_PORT"
            if variable in self.isolation.ports:
                raise ValueError(f"`{variable}` is already the variable of service `{name}`")
            if service.port in self.isolation.ports.values():
                raise ValueError(f"port {service.port} is already used by service `{name}`")
        return self

    @property
    def timeout(self) -> float | None:
        """Seconds that a worker may run; None: no limit."""
        # Clocks and dates overflow with larger values.
        return self.timeout_per_worker or None

    @property
    def setup_network(self) -> Network:
        """Network mode of the `setup` commands, such as `none` or `open`."""
        # protection: no-network-for-found-files-setup
        own: Network = "none" if "setup" in self.closed_stages else self.isolation.network
        return self.isolation.setup_network or own

    @property
    def teardown_network(self) -> Network:
        """Network mode of the `teardown` commands, such as `none` or `open`."""
        # protection: no-network-for-found-files-teardown
        return "none" if "teardown" in self.closed_stages else self.isolation.network

    @property
    def networks(self) -> frozenset[Network]:
        """Network modes, such as `none` and `open`, that containers of this run use."""
        networks = {self.isolation.network}
        if self.project.setup:
            networks.add(self.setup_network)
        if self.project.checks:
            networks.add(self.isolation.check_network)
        return frozenset(networks)


def _no_option(name: str) -> str:
    """Return a name; raise ValueError if an agent program could parse the name as an option."""
    # protection: model-name-that-looks-like-option-refused
    if name.lstrip().startswith("-"):
        raise ValueError(f"the name `{name}` must not begin with `-`")
    return name


def _not_given(model: BaseModel, values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name not in model.model_fields_set}


def repository_config_files(top: Path) -> tuple[Path, ...]:
    """Return the paths of a repository's configuration file; the first that exists is used."""
    return (top / "orchestrator.yaml", top / ".orchestrator" / "config.yaml")
