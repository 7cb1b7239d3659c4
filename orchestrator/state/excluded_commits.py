"""Read which commits the latest judgements exclude, below the package that judges."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from orchestrator.files.safe_open import read_limited

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


def excluded_commits(runs: Iterable[Path]) -> dict[str, ExcludedCommit]:
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
