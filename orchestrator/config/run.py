"""What a run is asked to do: frozen, validated, with every default in one place."""

import re
from collections.abc import Mapping
from datetime import timedelta
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

from orchestrator.config.container import Isolation, Limits, Network
from orchestrator.config.presets import PRESETS, Preset
from orchestrator.config.project import Project, variable_prefix
from orchestrator.config.values import DEFAULT_TIMEOUT, Model
from orchestrator.results import Reason
from orchestrator.text.name_templates import (
    BRANCH,
    WORKTREE_DIR,
    check_branch,
    check_worktree_dir,
)

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


StageKey = Literal["setup", "teardown", "checks"]
"""Keys of a file whose commands run before or after an agent."""


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
    enforce: Literal["ro"] | None = None
    """`ro`: everything in the worktree outside `paths` is mounted read-only. Each path must then be
    a directory from the repository's top, without wildcards. Default: changes elsewhere are
    possible, and are reported."""
    on_trigger: Literal["warn", "stop"] = "warn"
    """`stop`: the worker is stopped for it, and its work is kept."""
    notify: str | None = Field(default=None, min_length=1)
    """A command of yours, run without a shell, that gets a JSON object on stdin; or a URL that the
    object is posted to. Told are triggers, failed workers and the end of the run."""


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
_LONGEST_TIMEOUT = 1e9
"""Seconds; 31 years."""
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
    worktree_dir: Annotated[str, AfterValidator(check_worktree_dir)] = WORKTREE_DIR
    """Directory of each worker's worktree: `{n}` is the number of the worker, `{id}` the id of its
    task (`worker-N` outside of workflows). From the repository's top, absolute, or from `~/`; it
    may be outside of the repository, as `../.worktrees/{id}`."""
    branch: Annotated[str, AfterValidator(check_branch)] = BRANCH
    """Branch of each worker, with `{n}` and `{id}` as in `worktree_dir`, as `solve/{id}`."""
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
        return tuple(_no_option(model.strip()) for model in models)

    @field_validator("model", "agent")
    @classmethod
    def _no_option(cls, name: str | None) -> str | None:
        return name if name is None else _no_option(name)

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
        # Clocks and dates cannot count to more than that.
        return min(self.timeout_per_worker, _LONGEST_TIMEOUT) or None

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


def _no_option(name: str) -> str:
    """Refuse a name that an agent program could take for one of its options."""
    if name.lstrip().startswith("-"):
        raise ValueError("a name must not begin with `-`")
    return name


def _not_given(model: BaseModel, values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name not in model.model_fields_set}


def repository_config_files(top: Path) -> tuple[Path, ...]:
    """Where a repository's own configuration may be, the first that exists wins."""
    return (top / "orchestrator.yaml", top / ".orchestrator" / "config.yaml")
