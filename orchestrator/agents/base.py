"""The seam to an agent program: how it is called, and what its output means."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from orchestrator.engine.base import ExitStatus
from orchestrator.plan import WorkerSpec
from orchestrator.results import Reason, Status


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """What a run asks of every agent."""

    profile: str
    max_steps: int
    budget: float | None
    timeout: float | None
    """Seconds until the worker's deadline, grace not included."""
    grace: float
    api_base: str | None


@dataclass(frozen=True, kw_only=True)
class AgentProgress:
    """What an agent says of itself while it runs."""

    cost: float | None = None
    steps: int | None = None


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
    def droppings(self) -> tuple[str, ...]:
        """Patterns, as in `.gitignore`, of files it leaves and nobody wants committed."""

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Name the variable without which a model cannot be called, if it is not there.

        Args:
            model: None is the program's default.
            environment: What the container will have.
        """

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Say how the program is started for one worker."""

    def progress(self, line: str) -> AgentProgress | None:
        """Read one line of stdout while the program runs, or None when it says nothing."""

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Say what the program's end means; called when it ended by itself or by a signal."""
