"""Every error that ends a command, each with its exit code and, where known, what to do."""

from typing import ClassVar


class OrchestratorError(Exception):
    """Something other than a task went wrong; `exit_code` is what the command line returns."""

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return what is wrong and what to do: the caller may print no more than this."""
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


class ConfigError(OrchestratorError):
    """An option, a key or a value that cannot be honoured."""

    exit_code = 3


class AuthenticationError(OrchestratorError):
    """A model cannot be called for want of a key."""

    exit_code = 4


class RepositoryError(OrchestratorError):
    """No usable git repository, or git refused."""

    exit_code = 3


class NoRepositoryError(RepositoryError):
    """There is no git repository around a directory."""


class ImageNotFoundError(OrchestratorError):
    """The engine does not have the image."""

    exit_code = 3


class ImageBuildError(OrchestratorError):
    """An image could not be pulled, bootstrapped or built."""

    exit_code = 3


class PortTakenError(OrchestratorError):
    """A port on the host is in use already."""

    exit_code = 3


class UnsupportedError(OrchestratorError):
    """The engine lacks a feature that was asked for."""

    exit_code = 3


class NotRunningError(OrchestratorError):
    """A container does not run, or not any more."""

    exit_code = 3


class EngineError(OrchestratorError):
    """The engine refused a request or broke while carrying it out."""

    exit_code = 7


class EngineUnavailableError(EngineError):
    """The engine cannot be reached."""


class UnfinishedError(EngineError):
    """A worker has ended, and its work could not be brought home for want of engine or disk."""


class RunDiedError(OrchestratorError):
    """A run's process is gone, and the run has no result."""

    exit_code = 7
