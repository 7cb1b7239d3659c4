"""Collect all problems that prevent a run, so that the user sees all of them at once."""

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from orchestrator.base.errors import (
    AuthenticationError,
    ConfigError,
    EngineError,
    OrchestratorError,
)

P = ParamSpec("P")
T = TypeVar("T")
_MOST = 50
"""Maximum number of problems that one error message lists."""
_GRAVEST: tuple[type[OrchestratorError], ...] = (EngineError, AuthenticationError)


class Attempt(Generic[T]):
    """The return value of a check, unless the check found a problem."""

    def __init__(self, *values: T) -> None:
        self._values = values

    @property
    def has_problem(self) -> bool:
        """Return whether the check found a problem."""
        return not self._values

    @property
    def value(self) -> T:
        """Return the check's return value; only for a check that found no problem."""
        return self._values[0]


class Problems:
    """Calls checks, and collects the errors that they raise."""

    def __init__(self) -> None:
        """Start with no collected problem."""
        self._found: dict[tuple[str, str | None], tuple[str | None, OrchestratorError]] = {}
        self._task: str | None = None

    def of_task(self, task: str | None) -> "Problems":
        """Return a view of this collection that adds a task's name to all problems added by it."""
        view = Problems()
        view._found, view._task = self._found, task
        return view

    def attempt(self, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Attempt[T]:
        """Call a check, return its result as an `Attempt`, and collect an error that it raises."""
        try:
            return Attempt(check(*args, **kwargs))
        except OrchestratorError as error:
            # protection: problem-found-by-check-prevents-run
            self.add(error)
            return Attempt()

    def add(self, error: OrchestratorError) -> None:
        """Collect an error. If several tasks have the same error, only the first task is named."""
        self._found.setdefault((error.message, error.hint), (self._task, error))

    @property
    def errors(self) -> list[OrchestratorError]:
        """Return the collected errors, in the order in which they were found."""
        return [error for _, error in self._found.values()]

    def raise_all(self) -> None:
        """Raise the collected errors, if any; several errors become one error with a line for each.

        Raises:
            OrchestratorError: The only error, or the list of all errors. The list is an
                `EngineError` if it contains an `EngineError`, else an `AuthenticationError` if it
                contains an `AuthenticationError`, else a `ConfigError`.
        """
        for task, error in self._found.values():
            if task is not None:
                error.message = f"task `{task}`: {error.message}"
        errors = self.errors
        if len(errors) == 1:
            raise errors[0]
        if errors:
            graver = (kind for kind in _GRAVEST if any(isinstance(error, kind) for error in errors))
            lines = [f"\n  {error}" for error in errors[:_MOST]]
            more = [f"\n  and {len(errors) - _MOST} more"] if len(errors) > _MOST else []
            listed = "".join([*lines, *more])
            raise next(graver, ConfigError)(
                f"{len(errors)} problems prevent the run:{listed}", key="run.prevented"
            ) from errors[0]
