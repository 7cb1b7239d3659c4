"""The result of one command that ran on the files of one commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.base.results import Reason

Answer = Literal["pass", "fail", "none"]
"""Result of a command; `none` if the engine or the machine failed, or the run was cancelled."""
Outcome = Literal["passed", "failed", "skipped"]
BLAMELESS = frozenset(
    {
        Reason.ENGINE_ERROR, Reason.INTERNAL_ERROR, Reason.CANCELLED, Reason.NETWORK_LOST,
        Reason.SETUP_FAILED, Reason.SERVICE_DIED, Reason.RATE_LIMITED, Reason.AUTH, Reason.BUDGET,
        Reason.HARVEST_REFUSED,
    }
)  # fmt: skip
"""Reasons for a failed run that say nothing about the tested commit."""


@dataclass(frozen=True)
class Watched:
    """A test, or a file with tests, whose failure is looked for in the output of a check."""

    words: tuple[str, ...]
    """Texts that a line which reports the failure contains, identifiers as whole words."""


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
    exit_code: int | None = None
    """Exit code of the command; null if it was stopped, or never started."""
    output: str = ""
    """The end of the command's output."""
    failed: tuple[int, ...] = ()
    """Indexes of the watched tests that the output or the JUnit file reports as failed."""


class RunChecks(Protocol):
    """Runs commands on a commit, each in a fresh container."""

    def __call__(
        self, commit: str, commands: Sequence[str], *, watched: Sequence[Watched] = ()
    ) -> list[CheckRun]:
        """Run the commands, and return a result for each.

        Args:
            commit: The commit whose files the commands see.
            commands: The commands.
            watched: Tests whose failures are looked for in the output.
        """


@dataclass(frozen=True, kw_only=True)
class Tester:
    """A function that runs checks, and a text that decides whether stored results are valid."""

    run: RunChecks
    identity: str
    """Text of the settings that decide results besides commands and files, such as the image."""
    workers: int = 1
    """Number of commits on which commands run at the same time."""
