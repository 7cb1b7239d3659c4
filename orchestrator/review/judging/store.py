"""The judgements of a run on disk: `judgement-N.json` in the run's directory."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.safe_open import read_limited
from orchestrator.review.judging.judgement import Judgement
from orchestrator.state.judgements import (
    JUDGEMENT,
    LARGEST_JUDGEMENT,
    judgement_numbers,
)
from orchestrator.state.record.history import find_run
from orchestrator.state.run_directory import RunDirectory, all_runs


def next_number(run: Path) -> int:
    """Return the number of a run's next judgement."""
    return max(judgement_numbers(run), default=0) + 1


def write_judgement(run: Path, judgement: Judgement) -> None:
    """Write a judgement to the run's directory, without changing earlier ones."""
    path = run / f"{JUDGEMENT}{judgement.number}.json"
    write_atomically(path, judgement.model_dump_json(indent=2))


def latest_judgement(state_dir: Path, wanted: str | None) -> Judgement:
    """Return the latest judgement of a run.

    Args:
        state_dir: The repository's state directory.
        wanted: The run's id, or the beginning of it. Default: the newest run that was judged.

    Raises:
        ConfigError: There is no such run, or it was not judged.
    """
    runs: Sequence[RunDirectory] = list(all_runs(state_dir))
    candidates = (
        [find_run(runs, wanted)]
        if wanted
        else [run for run in reversed(runs) if run.other_user is None]
    )
    for run in candidates:
        if (found := read_judgement(run.path)) is not None:
            return found
    what = f"run {candidates[0].run_id} was not judged" if wanted else "no run was judged"
    raise ConfigError(
        what, key="judgement.missing", hint="judge a run: `orchestrator judge --check 'make test'`"
    )


def read_judgement(run: Path) -> Judgement | None:
    """Return the latest judgement in a run's directory; None if there is none."""
    for number in judgement_numbers(run):
        with suppress(OSError, ValidationError):
            data = read_limited(run / f"{JUDGEMENT}{number}.json", most=LARGEST_JUDGEMENT)
            return Judgement.model_validate_json(data)
    return None
