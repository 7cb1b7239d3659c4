"""The step that may follow a run before its command ends, such as a merge of its branches."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    # Options import this module, and help texts must not import pydantic.
    from orchestrator.base.results import RunResult
    from orchestrator.review.landing.merged import Merged


class Sequel(Protocol):
    """The outcome of a step that followed a run."""

    def exit_code_after(self, code: int) -> int:
        """Return the command's exit code, given that of the run."""

    @property
    def merged(self) -> "Merged | None":
        """Return how branches of the run were merged; None if they were not merged."""

    @property
    def values(self) -> Mapping[str, object]:
        """Return the additional keys of the run's JSON object, with their values."""


class NextStep(Protocol):
    """A step that follows a run which has ended, such as a merge of its branches."""

    def __call__(self, result: "RunResult", *, show_text: bool) -> Sequel:
        """Perform the step.

        Args:
            result: The result of the run.
            show_text: Whether to print the outcome.

        Raises:
            OrchestratorError: The step failed, or was cancelled.
        """

    def cancel(self, *, kill: bool = False) -> None:
        """Stop the step."""
