"""The states of runs and workers in a word, with a tone that selects the colour."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.results import Reason, RunResult, Status

Tone = Literal["success", "danger", "warning", "active", "idle", "neutral"]
_WORST_FIRST: Sequence[Tone] = ("danger", "warning", "active", "idle", "neutral", "success")
"""Order in which lists show and count the workers of each tone (class of a state)."""


@dataclass(frozen=True)
class Badge:
    """A state in a word, and the tone (such as `danger`) that selects its colour."""

    word: str
    tone: Tone

    @property
    def group(self) -> str:
        """The name under which lists count and filter workers or runs with this state."""
        return {"active": "running", "idle": "waiting"}.get(self.tone, self.word.lower())

    @property
    def rank(self) -> int:
        """Position of the state among all states, worst first."""
        return _WORST_FIRST.index(self.tone)


STATUSES: Mapping[Status, Badge] = {
    Status.SUCCESS: Badge("Succeeded", "success"),
    Status.PARTIAL: Badge("Partial", "warning"),
    Status.FAILED: Badge("Failed", "danger"),
    Status.TIMEOUT: Badge("Timed out", "danger"),
}
INTERRUPTED = Badge("Interrupted", "danger")
"""State of a worker whose run died before the worker ended."""


def run_badge(result: RunResult | None, *, is_live: bool) -> Badge:
    """Return the state of a run as a word with a tone (such as `danger`) for its colour."""
    if is_live:
        return Badge("Running", "active")
    if result is None:
        return Badge("Died", "danger")
    if {one.reason for one in result.results} == {Reason.CANCELLED}:
        return Badge("Cancelled", "neutral")
    return STATUSES[result.status]
