"""Compare two candidates of a judgement with each other."""

from typing import get_args

from pydantic import BaseModel, ConfigDict

from orchestrator.base.errors import ConfigError
from orchestrator.repository.commits.changes import stat_lines
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.judgement import Candidate, Column, Judgement

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


def pair_of(repository: Repository, judgement: Judgement, number: int, other: int) -> Pair:
    """Compare two workers of a judgement.

    Raises:
        ConfigError: The numbers are equal, or a worker was not judged.
        RepositoryError: Git failed.
    """
    if number == other:
        raise ConfigError(
            f"worker {number} cannot be compared with itself", key="comparison.same-worker"
        )
    first, second = sorted((_place(judgement, number), _place(judgement, other)))
    pair = judgement.ranking[first], judgement.ranking[second]
    # Each candidate names the first column in which it differs from the next one. The earliest of
    # these columns also separates the ends of the list.
    above = [candidate.decided_by or "number" for candidate in judgement.ranking[first:second]]
    decided_by = None if pair[0].place is None else min(above, key=_COLUMNS.index)
    files, commits = None, [candidate.commit for candidate in pair]
    if all(repository.commit_of(commit) is not None for commit in commits):
        rows = stat_lines(repository, base=commits[0], tip=commits[1])
        found = [
            FileDifference(path=path, added=added, removed=removed) for added, removed, path in rows
        ]
        files = tuple(found[:MOST_FILES])
    return Pair(
        run_id=judgement.run_id,
        number=judgement.number,
        better=pair[0].worker_id,
        decided_by=decided_by,
        ranking=pair,
        files=files,
    )


def _place(judgement: Judgement, number: int) -> int:
    numbers = [candidate.worker_id for candidate in judgement.ranking]
    if number not in numbers:
        raise ConfigError(
            f"worker {number} of run {judgement.run_id} was not judged",
            key="worker.unjudged",
            hint=f"judged workers: {', '.join(map(str, sorted(numbers)))}",
        )
    return numbers.index(number)
