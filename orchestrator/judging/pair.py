"""Compare two candidates of a judgement with each other."""

from typing import get_args

from pydantic import BaseModel, ConfigDict

from orchestrator.errors import ConfigError
from orchestrator.git.changes import stat_lines
from orchestrator.git.repository import Repository
from orchestrator.judging.judgement import Candidate, Column, Judgement

MOST_FILES = 1000
"""Maximum number of files that are listed."""
_COLUMNS: tuple[Column, ...] = get_args(Column)


class FileDifference(BaseModel):
    """A file that differs between two candidates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    added: int
    """Number of lines that the second candidate has and the first candidate lacks."""
    removed: int


class Pair(BaseModel):
    """The output of `orchestrator compare N M --json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    number: int
    """Number of the judgement."""
    better: int
    """Number of the worker with the better place."""
    decided_by: Column | None
    """The first column in which the candidates differ; `same change` if they share a place, and
    null if both are excluded.
    """
    ranking: tuple[Candidate, Candidate]
    """The two candidates, the better one first."""
    files: tuple[FileDifference, ...] | None
    """Files that differ, at most 1000; null if a commit is gone."""


def pair_of(repository: Repository, judgement: Judgement, one: int, other: int) -> Pair:
    """Compare two workers of a judgement.

    Raises:
        ConfigError: The numbers are equal, or a worker was not judged.
        RepositoryError: Git failed.
    """
    if one == other:
        raise ConfigError(f"worker {one} cannot be compared with itself")
    first, second = sorted((_place(judgement, one), _place(judgement, other)))
    pair = judgement.ranking[first], judgement.ranking[second]
    return Pair(
        run_id=judgement.run_id,
        number=judgement.number,
        better=pair[0].worker_id,
        decided_by=_decided_by(judgement.ranking[first:second]),
        ranking=pair,
        files=_files(repository, *pair),
    )


def _place(judgement: Judgement, number: int) -> int:
    numbers = [candidate.worker_id for candidate in judgement.ranking]
    if number not in numbers:
        raise ConfigError(
            f"worker {number} of run {judgement.run_id} was not judged",
            hint=f"judged workers: {', '.join(map(str, sorted(numbers)))}",
        )
    return numbers.index(number)


def _decided_by(above: tuple[Candidate, ...]) -> Column | None:
    """Return the first column in which the ends of a sorted list differ; None without a place.

    Args:
        above: The candidates of the list except the last one. Each names the first column in which
            it differs from the next candidate. The earliest of these columns also separates the
            ends of the list.
    """
    if above[0].place is None:
        return None
    return min((one.decided_by or "number" for one in above), key=_COLUMNS.index)


def _files(
    repository: Repository, one: Candidate, other: Candidate
) -> tuple[FileDifference, ...] | None:
    if any(repository.commit_of(each.commit) is None for each in (one, other)):
        return None
    rows = stat_lines(repository, base=one.commit, tip=other.commit)
    found = [
        FileDifference(path=path, added=added, removed=removed) for added, removed, path in rows
    ]
    return tuple(found[:MOST_FILES])
