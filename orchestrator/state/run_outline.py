"""The part of a run's record that lists of runs need.

Importing and validating the settings of a run takes several times as long as the rest of such a
list.
"""

from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.worker_spec import WorkerSpec

RECORD = "run.json"


class RunOutline(BaseModel):
    """A run's workers and where they started."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    created_at: datetime
    top: Path
    base: str
    engine: str
    workers: tuple[WorkerSpec, ...]


def read_outline(run: RunDirectory) -> RunOutline | None:
    """Read the outline of a run; return None if it is missing or has an unknown format."""
    try:
        return RunOutline.model_validate_json((run.path / RECORD).read_bytes())
    except (OSError, ValidationError):
        return None


def live_numbers(state_dir: Path) -> frozenset[int]:
    """Return the worker numbers of live runs, even if their branches are gone."""
    outlines = (read_outline(run) for run in all_runs(state_dir) if run.is_live())
    return frozenset(spec.worker_id for outline in outlines if outline for spec in outline.workers)
