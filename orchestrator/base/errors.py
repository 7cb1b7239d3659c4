"""Errors that end a command: each has a key, an exit code and, if possible, a hint.

The key stands for the meaning: programs and tests rely on it, while sentences may change.
"""

from collections.abc import Sequence
from typing import ClassVar


class OrchestratorError(Exception):
    """An error that is not the failure of a task; `exit_code` is the command line's exit code."""

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, key: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.hint = hint

    def values(self) -> dict[str, object]:
        """Return the error as programs read it."""
        return {
            "key": self.key,
            "exit_code": self.exit_code,
            "message": self.message,
            "hint": self.hint,
        }

    def __str__(self) -> str:
        """Return message and hint together, because a caller may print nothing else."""
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


class ConfigError(OrchestratorError):
    """An option, key or value is invalid or not supported."""

    exit_code = 3


class AuthenticationError(OrchestratorError):
    """A model's API key is missing."""

    exit_code = 4


class RepositoryError(OrchestratorError):
    """There is no usable git repository, or git failed."""

    exit_code = 3


class NoRepositoryError(RepositoryError):
    """The directory is not inside a git repository."""


class ImageNotFoundError(OrchestratorError):
    """The engine does not have an image."""

    exit_code = 3


class ImageBuildError(OrchestratorError):
    """An image could not be pulled, bootstrapped, built or pushed."""

    exit_code = 3


class PortTakenError(OrchestratorError):
    """A port on the host is already in use."""

    exit_code = 3


class UnsupportedError(OrchestratorError):
    """The container engine lacks a requested feature."""

    exit_code = 3


class NotRunningError(OrchestratorError):
    """The container is not running."""

    exit_code = 3


class StartCancelledError(OrchestratorError):
    """The worker was cancelled while it waited for its turn, or for room, to start."""


class EngineError(OrchestratorError):
    """The engine refused a request or failed to carry it out."""

    exit_code = 7


class EngineUnavailableError(EngineError):
    """The container engine cannot be reached.

    Attributes:
        retry_after: Seconds for which whoever repeats the call is asked to wait.
    """

    def __init__(
        self, message: str, *, key: str, hint: str | None = None, retry_after: float = 0.0
    ) -> None:
        super().__init__(message, key=key, hint=hint)
        self.retry_after = retry_after


class PlaceLostError(EngineError):
    """The place of an attempt is gone with all that was in it, and nobody can come back to it.

    Attributes:
        restarts: Whether the attempt can be made again, because the task is not to blame.
    """

    def __init__(self, message: str, *, key: str, restarts: bool = False) -> None:
        super().__init__(message, key=key)
        self.restarts = restarts


class UnfinishedError(EngineError):
    """A worker has ended, but its work could not be collected because the engine or disk failed."""


class RunDiedError(OrchestratorError):
    """The process of a run died before the run had a result."""

    exit_code = 7


class GitCommandError(RepositoryError):
    """A git command failed; the message ends with git's error output."""

    def __init__(self, arguments: Sequence[str], exit_code: int, stderr: str) -> None:
        ended = "it was killed, for example at its time limit"
        said = stderr.strip() or (f"exit code {exit_code}" if exit_code >= 0 else ended)
        super().__init__(f"`git {arguments[0]}` failed: {said}", key="git.failed")
        self.returncode = exit_code
        self.stderr = stderr


class OutputTooLongError(RepositoryError):
    """A git command printed more than the limit for its output."""


MOST_MISTAKES = 50
"""Maximum number of problems that an error lists."""


def mistakes(
    problems: Sequence[str], hint: str, what: str = "configuration", *, key: str
) -> ConfigError:
    """Return a single error that lists all problems, up to a maximum number."""
    if len(problems) == 1:
        return ConfigError(problems[0], key=key, hint=hint)
    more = [f"and {len(problems) - MOST_MISTAKES} more"] if len(problems) > MOST_MISTAKES else []
    lines = "".join(f"\n  {problem}" for problem in [*problems[:MOST_MISTAKES], *more])
    return ConfigError(f"{len(problems)} mistakes in the {what}:{lines}", key=key, hint=hint)
