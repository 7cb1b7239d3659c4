"""The files of judgements, for packages below the one that judges.

They have the commits that the latest judgements exclude, and the results of checks, so that a
judgement does not repeat a check on the same files.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from orchestrator.base.files.lock_file import take_lock
from orchestrator.base.files.owner import own_place
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.safe_open import read_limited
from orchestrator.repository.repository import Repository

JUDGED = "judged"
"""Name of the directory, in the state directory, with a file for each result of a check."""
LOCK = "judging.lock"
"""Name of the lock file, in the state directory, that a judgement locks while it runs."""
JUDGEMENT = "judgement-"
"""Beginning of the names of the files with judgements, in a run's directory."""
LARGEST_JUDGEMENT = 64 * 1024**2
"""Maximum size in bytes of a judgement that is read."""


class _Flag(BaseModel):
    flag: str = Field(validation_alias=AliasChoices("flag", "kind"))
    out: bool


class _Candidate(BaseModel):
    run_id: str = ""
    worker_id: int
    commit: str
    out: bool
    flags: tuple[_Flag, ...] = ()


class _Judgement(BaseModel):
    ranking: tuple[_Candidate, ...] = Field(validation_alias=AliasChoices("ranking", "candidates"))


@dataclass(frozen=True)
class ExcludedCommit:
    """A worker's commit that a judgement excludes."""

    run_id: str
    worker_id: int
    commit: str
    findings: str
    """Names of the findings."""


def judgement_numbers(run: Path) -> list[int]:
    """Return the numbers of the judgements in a run's directory, the latest first."""
    names = (path.stem.removeprefix(JUDGEMENT) for path in run.glob(f"{JUDGEMENT}*.json"))
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def find_excluded_commits(runs: Iterable[Path]) -> dict[str, ExcludedCommit]:
    """Return the commits that the latest judgement about them excludes.

    Args:
        runs: The directories of all runs. Later judgements of a run replace its earlier ones.
    """
    latest: dict[str, ExcludedCommit | None] = {}
    for _, run, judgement in sorted(_judgements(runs), key=lambda entry: entry[:2]):
        for candidate in judgement.ranking:
            findings = ", ".join(dict.fromkeys(flag.flag for flag in candidate.flags if flag.out))
            excluded = ExcludedCommit(
                candidate.run_id or run, candidate.worker_id, candidate.commit, findings
            )
            latest[candidate.commit] = excluded if candidate.out else None
    return {commit: excluded for commit, excluded in latest.items() if excluded is not None}


def _judgements(runs: Iterable[Path]) -> Iterator[tuple[int, str, _Judgement]]:
    """Yield the latest judgement of each run, after the time of its file and the run's id."""
    for run in runs:
        for number in judgement_numbers(run):
            path = run / f"{JUDGEMENT}{number}.json"
            try:
                data = read_limited(path, most=LARGEST_JUDGEMENT)
                judgement = _Judgement.model_validate_json(data)
                time = path.stat().st_mtime_ns
            except (OSError, ValidationError):
                continue
            yield time, run.name, judgement
            break


def drop_results(repository: Repository, *, dry_run: bool = False) -> int:
    """Remove the stored results of checks, unless a judgement runs; return the number removed.

    Args:
        repository: The repository.
        dry_run: Only return the number.
    """
    place = own_place(repository.state_dir, JUDGED)
    found = len([*place.iterdir()]) if place.is_dir() else 0
    if not found or dry_run:
        return found
    lock = take_lock(repository.state_dir / LOCK)
    if lock is None:
        return 0
    with lock:
        remove_tree(place)
    return found
