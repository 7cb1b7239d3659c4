"""The states of runs and workers in a word, with a tone that selects the colour."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.record.states import NEEDS_ATTENTION, RunState
from orchestrator.results import RunResult, ended_word

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


_TONES: Mapping[str, Tone] = {
    "success": "success",
    "partial": "warning",
    NEEDS_ATTENTION: "warning",
    "failed": "danger",
    "timeout": "danger",
    "died": "danger",
    "cancelled": "neutral",
    "skipped": "neutral",
    "queued": "idle",
    "retrying": "idle",
}


def badge_of(word: str) -> Badge:
    """Return the badge of a run's or worker's state, from the name of the state."""
    return Badge(word.capitalize(), _TONES.get(word, "active"))


def run_badge(result: RunResult | None, *, is_live: bool) -> Badge:
    """Return the state of a run as a word with a tone (such as `danger`) for its colour."""
    if is_live:
        return badge_of(RunState.RUNNING.value)
    return badge_of(
        RunState.DIED.value if result is None else ended_word(result.status, result.results)
    )
