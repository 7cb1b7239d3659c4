"""The protocol of agent adapters: how an agent program is started and its output interpreted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.container import AGENT_CONFIG
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.interface.protocol import ExitStatus

LONGEST_WORD = 128 * 1024 - 1
"""Maximum size in bytes of one argument or environment variable: Linux's `MAX_ARG_STRLEN` without
the final NUL.
"""
LONGEST_LINE = 1024**2
"""Maximum size in bytes of all arguments and environment variables together, well below the limit
of Linux.
"""
SESSION = "/session"
"""Path of the directory in a container in which a program keeps its session."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """The session that a program begins or continues."""

    id: str | None = None
    """Id of the session; None: the program chooses it."""
    continued: bool = False
    """Whether `SESSION` has the files of the session, which an earlier container began."""


@dataclass(frozen=True, kw_only=True)
class SessionFiles:
    """The files with which another container continues a session; nothing else may come back."""

    kept: tuple[str, ...]
    """Paths below `SESSION`; `*` is any text in one name, and `{id}` the id of the session."""
    id: str
    """Regular expression of the program's ids, which match as a whole."""
    chosen: bool = False
    """Whether a new session can be given an id, which is then a UUID."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of a run that concern the agent program."""

    profile: str
    max_steps: int
    budget: float | None
    tokens: int | None = None
    timeout: float | None
    """Seconds until the worker's deadline, without the grace period."""
    grace: float
    api_base: str | None
    config_file: str | None = None
    """Path in the container of the user's configuration file for the program; None without."""
    uses_broker: bool = False
    """Whether the run's credential broker passes on the program's calls."""
    session: Session | None = None
    """The session of the program; None: no session is kept."""

    @property
    def chosen_profile(self) -> str | None:
        """Return the profile; None for the default, which is meant for the program `architect`."""
        default = ParallelConfig.model_fields["agent"].default
        return None if self.profile == default else self.profile

    @classmethod
    def of(
        cls,
        config: ParallelConfig,
        *,
        budget: float | None = None,
        tokens: int | None = None,
        session: Session | None = None,
    ) -> Self:
        """Return the settings that concern the agent program.

        `budget` (in USD) and `tokens` are the worker's share of the run's limits. Default: the
        limit per worker in `config`, or else the limit of the whole run.
        """
        return cls(
            profile=config.agent,
            max_steps=config.max_steps,
            # The share of a total budget that a worker gets is known only when it starts.
            budget=budget or config.budget_per_worker or config.budget_total,
            tokens=tokens or config.tokens_per_worker or config.tokens_total,
            timeout=config.timeout,
            grace=config.limits.grace,
            api_base=config.api_base,
            config_file=None if config.agent_config is None else AGENT_CONFIG,
            uses_broker=config.isolation.keys == "broker",
            session=session,
        )

    def inner_timeout(self, closing_time: float) -> int | None:
        """Return a timeout for the program itself, so that it can report before it is stopped.

        Args:
            closing_time: Seconds that the program may need after its own timeout.
        """
        if self.timeout is None:
            return None
        margin = min(max(closing_time, self.grace), self.timeout / 4)
        return max(1, int(self.timeout - margin))  # 0 would mean no limit


def unsupported_settings(
    settings: AgentSettings,
    *,
    profiles: bool = True,
    cost: bool = True,
    tokens: bool = True,
    steps: bool = True,
) -> str | None:
    """Return the settings that the program cannot enforce, and why; None if there are none.

    Args:
        settings: The run's settings.
        profiles: Whether the program has profiles to choose from.
        cost: Whether the program can enforce a budget, or reports its cost while it runs.
        tokens: Whether the program reports its tokens while it runs.
        steps: Whether the program can limit its steps, or reports them while it runs.
    """
    unsupported = []
    if not profiles and settings.chosen_profile is not None:
        unsupported.append(f"`--agent {settings.profile}` (it has no profiles)")
    if not cost and settings.budget is not None:
        unsupported.append("`--budget-per-worker` (it does not report its cost)")
    if not tokens and settings.tokens is not None:
        unsupported.append("`--tokens-per-worker` (it does not report its tokens while it runs)")
    if not steps and settings.max_steps != ParallelConfig.model_fields["max_steps"].default:
        unsupported.append("`--max-steps` (it does not report its steps)")
    # An adapter that passes the file on checks `replace(settings, config_file=None)`.
    if settings.config_file is not None:
        unsupported.append("`--agent-config` (it is started without a configuration file)")
    return " and ".join(unsupported) or None


@dataclass(frozen=True, kw_only=True)
class AgentProgress:
    """Progress that an agent claims while it runs; all figures are totals so far."""

    cost: float | None = None
    tokens: int | None = None
    steps: int | None = None
    """Steps that were completed or started."""
    bounded: bool = True
    """Whether the steps count towards `--max-steps`."""


ProgressReader = Callable[[str], AgentProgress | None]
"""Function that parses one line of stdout; it returns the agent's progress, or None if the line has
none. It has state: each worker needs its own reader.
"""


@dataclass(frozen=True, kw_only=True)
class AgentOutcome:
    """Result of an agent run, as claimed by the worker: bounded and validated, but not trusted."""

    status: Status
    reason: Reason | None = None
    message: str | None = None
    steps: int = 0
    cost: float | None = None
    """Cost in USD; None if unknown."""
    tokens: int | None = None
    summary: str | None = None
    """The agent's final message; may have several lines."""
    retry_after: float | None = None
    """Seconds until the model's API accepts requests again; None if the API did not report it."""


@dataclass(frozen=True, kw_only=True)
class AgentOutput:
    """Files with the whole output of a container; the output may be far larger than memory."""

    stdout: Path
    stderr: Path


@dataclass(frozen=True, kw_only=True)
class AgentCommand:
    """Command line and variables of an agent's container."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    default_env: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set unless the user's environment sets them."""


class Agent(Protocol):
    """Adapter of an agent program. Stateless; found through entry points `orchestrator.agents`."""

    @property
    def name(self) -> str:
        """Name of the adapter for `--agent-cli`."""

    @property
    def image(self) -> str:
        """Default container image of the program."""

    @property
    def inherited_env(self) -> tuple[str, ...]:
        """Names of variables to pass on from the user's environment, such as API keys and URLs."""

    @property
    def ignored_files(self) -> tuple[str, ...]:
        """Patterns, as in `.gitignore`, of files of the program that are never committed."""

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Return the name of a missing variable without which the model cannot be called, or None.

        Args:
            model: Name of the model; None: the program's default.
            environment: Variables of the container.
        """

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Return the settings that neither the program nor the orchestrator can enforce, and why.

        The orchestrator stops a worker by the cost, tokens and steps that `progress_reader`
        reports.

        Returns:
            Text such as "`--budget-per-worker` (it does not report its cost)", as returned by
            `unsupported_settings`; None if all settings can be enforced.
        """

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command that starts the program for a worker."""

    def progress_reader(self) -> ProgressReader:
        """Return a new reader that parses a worker's stdout while the program runs."""

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Interpret the end of a program that exited or was killed by a signal."""


@runtime_checkable
class SessionAgent(Agent, Protocol):
    """Adapter of a program that continues a session in another container."""

    @property
    def session_files(self) -> SessionFiles:
        """The files of a session. `command` gets the session in its settings."""

    def session_id(self, output: AgentOutput) -> str | None:
        """Return the id of the session that the program reported first; None if it did not."""
