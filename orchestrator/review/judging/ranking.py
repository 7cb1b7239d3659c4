"""Order candidates by several columns, one after the other, without weights."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from orchestrator.review.judging.judgement import Column, Decision

DECISIVE: frozenset[Column] = frozenset(
    {
        "out",
        "review",
        "hidden tests",
        "must fix",
        "broken tests",
        "checks",
        "lint",
        "coverage",
        "judge",
    }
)
"""Columns of evidence, not of size or cost."""
# protection: lint-and-coverage-decide-nothing-alone
_CLEAR = DECISIVE - {"lint", "coverage"}
"""Columns that make a candidate clearly better. What linters and coverage tools print depends on
text that candidates write, such as comments that silence them: it only orders candidates.
"""


@dataclass(frozen=True, kw_only=True)
class Score:
    """What is known about a candidate, as numbers; smaller is better in every column."""

    worker_id: int
    passes: bool
    needs_review: bool = False
    """Whether a person has to look at the candidate before it can be the best."""
    columns: tuple[tuple[Column, float], ...]
    """Value in each column, most important column first; the worker's number breaks ties."""
    change: Hashable = field(default=None)
    """Value that is equal for candidates with the same change; None if unknown."""
    cluster: Hashable = field(default=None)
    """Value that is equal for candidates whose programs behave the same; None if unknown."""

    @property
    def is_out(self) -> bool:
        """Return whether a finding excludes the candidate."""
        return dict(self.columns).get("out", 0.0) > 0

    @property
    def key(self) -> tuple[float, ...]:
        """Return the key by which candidates are sorted."""
        return (*(value for _, value in self.columns), self.worker_id)


@dataclass(frozen=True)
class Ranked:
    """A candidate with its place."""

    score: Score
    place: int | None
    """Place of the candidate, 1 is the best; None if a finding excludes the candidate."""
    decided_by: Column | None
    """First column in which the candidate beats the next one; None without a place or a next one.
    """


def rank(scores: Sequence[Score]) -> list[Ranked]:
    """Return the candidates, best first."""
    ordered = sorted(scores, key=lambda score: score.key)
    found: list[Ranked] = []
    for number, score in enumerate(ordered):
        following = ordered[number + 1] if number + 1 < len(ordered) else None
        shares = bool(found) and _is_same(found[-1].score, score)
        place = found[-1].place if shares else number + 1
        if score.is_out:
            found.append(Ranked(score, place=None, decided_by=None))
        else:
            found.append(Ranked(score, place, _decisive_column(score, following)))
    return found


def decide(ranked: Sequence[Ranked]) -> tuple[Decision, int | None]:
    """Return the decision, and the best worker's number if the decision is `clear`."""
    passing = [entry for entry in ranked if entry.score.passes]
    if not passing:
        return "none", None
    first, following = passing[0].score, passing[1].score if len(passing) > 1 else None
    # protection: candidate-with-own-tests-is-not-picked
    if first.needs_review:
        return "undecided", None
    if following is None or _is_same(first, following):
        return "clear", first.worker_id
    clear = _decisive_column(first, following) in _CLEAR
    return ("clear", first.worker_id) if clear else ("undecided", None)


def equal_so_far(scores: Sequence[Score]) -> list[Score]:
    """Return the passing candidates that equal the best one in every `DECISIVE` column."""
    passing = sorted((score for score in scores if score.passes), key=lambda score: score.key)
    return [score for score in passing if _decisive(score) == _decisive(passing[0])]


def _decisive(score: Score) -> list[float]:
    return [value for column, value in score.columns if column in DECISIVE]


def _is_same(score: Score, other: Score) -> bool:
    """Return whether two candidates tie in all `DECISIVE` columns, with equal change or output."""
    if _decisive(score) != _decisive(other):
        return False
    same_change = score.change is not None and score.change == other.change
    return same_change or (score.cluster is not None and score.cluster == other.cluster)


def _decisive_column(score: Score, other: Score | None) -> Column | None:
    if other is None:
        return None
    if _is_same(score, other):
        return "same change"
    pairs = zip(score.columns, other.columns, strict=True)
    return next((column for (column, ours), (_, theirs) in pairs if ours != theirs), "number")
