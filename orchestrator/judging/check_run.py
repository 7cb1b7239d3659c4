"""The result of one command that ran on the files of one commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.errors import ConfigError
from orchestrator.results import Reason

Answer = Literal["pass", "fail", "none"]
"""Result of a command; `none` if the engine or the machine failed, or the run was cancelled."""
Tests = Literal["frozen", "extend", "free"]
"""Which tests count: only those of the base, also new ones, or the candidate's own versions."""
Outcome = Literal["passed", "failed", "skipped"]
BLAMELESS = frozenset(
    {
        Reason.ENGINE_ERROR, Reason.INTERNAL_ERROR, Reason.CANCELLED, Reason.NETWORK_LOST,
        Reason.SETUP_FAILED, Reason.RATE_LIMITED, Reason.AUTH, Reason.BUDGET,
        Reason.HARVEST_REFUSED,
    }
)  # fmt: skip
"""Reasons of a failed run that say nothing about the tested commit."""


def check_commands(commands: Sequence[str]) -> None:
    """Check that no command is empty: it would always succeed.

    Raises:
        ConfigError: A command is empty.
    """
    if not all(command.strip() for command in commands):
        raise ConfigError("a check must not be empty", hint="name a command that must succeed")


class CheckRun(BaseModel):
    """The result of one command that ran on the files of one commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    answer: Answer
    duration: float = Field(default=0.0, ge=0)
    """Duration in seconds."""
    cases: dict[str, Outcome] | None = None
    """Result of each test, by its id; null if the command wrote no JUnit file."""
    coverage: dict[str, dict[int, bool]] | None = None
    """Whether each line of each source file was executed; null if the command wrote no usable
    coverage file.
    """
    output: str = ""
    """The end of the command's output."""
    canaries: tuple[int, ...] = ()
    """Which of the tests that must fail are named in the output or the JUnit file."""


class RunChecks(Protocol):
    """Runs commands on a commit, each in a fresh container."""

    def __call__(
        self, commit: str, commands: Sequence[str], *, canary: tuple[str, ...] = ()
    ) -> list[CheckRun]:
        """Run the commands, and return a result for each.

        Args:
            commit: The commit whose files the commands see.
            commands: The commands.
            canary: Names of tests that must fail, to be searched for in the output.
        """


@dataclass(frozen=True, kw_only=True)
class Tester:
    """Runs checks, and knows which earlier results are still valid."""

    run: RunChecks
    identity: str
    """Text of everything but commands and files that decides the results, such as image and limits.
    """
    workers: int = 1
    """Number of commits on which commands run at the same time."""
