"""The seam to an agent program: how it is called, and what its output means."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from orchestrator.config.run import ParallelConfig
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

LONGEST_WORD = 128 * 1024 - 1
"""Bytes of one argument or variable of a program: Linux, `MAX_ARG_STRLEN`, less the final NUL."""
LONGEST_LINE = 1024**2
"""Bytes of all arguments and variables of a program together, well below what Linux takes."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """What a run asks of every agent."""

    profile: str
    max_steps: int
    budget: float | None
    tokens: int | None = None
    timeout: float | None
    """Seconds until the worker's deadline, grace not included."""
    grace: float
    api_base: str | None

    @property
    def chosen_profile(self) -> str | None:
        """The profile that somebody asked for: the default is one of architect's."""
        default = ParallelConfig.model_fields["agent"].default
        return None if self.profile == default else self.profile

    @classmethod
    def of(
        cls, config: ParallelConfig, *, budget: float | None = None, tokens: int | None = None
    ) -> Self:
        """Return the settings that concern the agent program.

        Args:
            config: The settings of the worker.
            budget: The USD that the worker may spend. Default: as `config` has it.
            tokens: The tokens that the worker may use. Default: as `config` has it.
        """
        return cls(
            profile=config.agent,
            max_steps=config.max_steps,
            # Of a total, what a worker gets is known when it starts.
            budget=budget or config.budget_per_worker or config.budget_total,
            tokens=tokens or config.tokens_per_worker or config.tokens_total,
            timeout=config.timeout,
            grace=config.limits.grace,
            api_base=config.api_base,
        )

    def inner_timeout(self, closing_time: float) -> int | None:
        """Return a limit of the program's own: it is to stop with a report before it is stopped.

        Args:
            closing_time: Seconds that it may take from there to its end.
        """
        if self.timeout is None:
            return None
        margin = min(max(closing_time, self.grace), self.timeout / 4)
        return max(1, int(self.timeout - margin))  # 0 would be no limit


@dataclass(frozen=True, kw_only=True)
class AgentProgress:
    """What an agent has come to while it runs, by its own word: totals, not what was added."""

    cost: float | None = None
    tokens: int | None = None
    steps: int | None = None
    """Steps done or begun."""
    bounded: bool = True
    """Whether those are the steps that `--max-steps` is about."""


ProgressReader = Callable[[str], AgentProgress | None]
"""Reads one line of stdout; None when it says nothing new. May count: it sees one worker only."""


@dataclass(frozen=True, kw_only=True)
class AgentOutcome:
    """What an agent's end means. Claims of the worker: bounded and validated, never trusted."""

    status: Status
    reason: Reason | None = None
    message: str | None = None
    steps: int = 0
    cost: float | None = None
    """USD, None when unknown."""
    tokens: int | None = None
    summary: str | None = None
    """What it said at its end, on as many lines as it took."""
    retry_after: float | None = None
    """Seconds after which the model's API takes requests again that refused one, if it said so."""


@dataclass(frozen=True, kw_only=True)
class AgentOutput:
    """The whole output of a container, on disk: it may be far larger than memory."""

    stdout: Path
    stderr: Path


@dataclass(frozen=True, kw_only=True)
class AgentCommand:
    """What to start in the container."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    default_env: Mapping[str, str] = field(default_factory=dict)
    """Variables for when the caller's environment says nothing else."""


class Agent(Protocol):
    """An agent program. Stateless; found through the entry points `orchestrator.agents`."""

    @property
    def name(self) -> str:
        """What `--agent-cli` calls it."""

    @property
    def image(self) -> str:
        """The image it runs in unless another is asked for."""

    @property
    def inherited_env(self) -> tuple[str, ...]:
        """Names of variables passed on from the caller's environment: its API keys and URLs."""

    @property
    def ignored_files(self) -> tuple[str, ...]:
        """Patterns, as in `.gitignore`, of files it leaves and nobody wants committed."""

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Name the variable without which a model cannot be called, if it is not there.

        Args:
            model: None is the program's default.
            environment: What the container will have.
        """

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Name the settings that can be kept neither by the program nor from outside, and why.

        From outside a worker is stopped by what `progress_reader` tells of its cost, tokens and
        steps.

        Returns:
            Such as "`--budget-per-worker` (it does not say what it spends)"; None when all are
            kept. `unsupported_settings` makes such a text.
        """

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return how the program is started for one worker."""

    def progress_reader(self) -> ProgressReader:
        """Make what reads a worker's stdout while the program runs."""

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return what the program's end means; called when it ended by itself or by a signal."""
