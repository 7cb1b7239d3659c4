"""The outline of a run: the part of its record that is enough to list runs.

The rest of the record has the run's settings. Importing and validating them would make a list of
runs several times slower.
"""

from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.git.git_directory import present_place
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.worker_spec import WorkerSpec

RECORD = "run.json"
_SECRET = {"task": "", "model": None}


class RunOutline(BaseModel):
    """The workers of a run, and the directory and commit from which the run was started."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    created_at: datetime
    top: Path
    base: str
    engine: str
    workers: tuple[WorkerSpec, ...]

    def public(self) -> dict[str, Any]:
        """Return what users who may not read the run may know: names that they see anyway."""
        kept = {"worker_id", "worktree_dir", "branch_name"}
        names = [worker.model_dump(include=kept) for worker in self.workers]
        known = self.model_dump(mode="json", include={"run_id", "created_at", "top", "base"})
        return {**known, "engine": "", "workers": [{**worker, **_SECRET} for worker in names]}


_Outline = TypeVar("_Outline", bound=RunOutline)


def placed(outline: _Outline, run: RunDirectory) -> _Outline:
    """Return a record with the present path of its checkout: the repository may have been moved."""
    common_dir = run.path.parents[2]
    return outline.model_copy(update={"top": present_place(outline.top, common_dir)})


def read_outline(run: RunDirectory) -> RunOutline | None:
    """Read the outline of a run; return None if its record is missing or has an unknown format.

    The outline of another user's run has no tasks.
    """
    try:
        if run.other_user is not None:
            return placed(RunOutline.model_validate(run.public.read()), run)
        return placed(RunOutline.model_validate_json((run.path / RECORD).read_bytes()), run)
    except (OSError, ValidationError):
        return None


def live_numbers(state_dir: Path) -> frozenset[int]:
    """Return the worker numbers of runs in progress, even of workers whose branches are gone."""
    outlines = (read_outline(run) for run in all_runs(state_dir) if run.is_live())
    return frozenset(spec.worker_id for outline in outlines if outline for spec in outline.workers)
