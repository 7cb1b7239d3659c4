"""Read which commits the latest judgement of a run excludes, below the package that judges."""

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
    commit: str
    out: bool
    flags: tuple[_Flag, ...] = ()


class _Judgement(BaseModel):
    ranking: tuple[_Candidate, ...] = Field(validation_alias=AliasChoices("ranking", "candidates"))


def judgement_numbers(run: Path) -> list[int]:
    """Return the numbers of the judgements in a run's directory, the latest first."""
    names = (path.stem.removeprefix(JUDGEMENT) for path in run.glob(f"{JUDGEMENT}*.json"))
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def excluded_commits(run: Path) -> dict[str, str]:
    """Return the commits that the latest judgement of a run excludes, with names of the findings.

    Args:
        run: The run's directory.
    """
    for number in judgement_numbers(run):
        try:
            data = read_limited(run / f"{JUDGEMENT}{number}.json", most=LARGEST_JUDGEMENT)
            judgement = _Judgement.model_validate_json(data)
        except (OSError, ValidationError):
            continue
        return {
            one.commit: ", ".join(dict.fromkeys(flag.flag for flag in one.flags if flag.out))
            for one in judgement.ranking
            if one.out
        }
    return {}
