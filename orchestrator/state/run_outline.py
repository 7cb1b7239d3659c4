"""The outline of a run: the part of its record that is enough to list runs.

The rest of the record has the run's settings. Importing and validating them would make a list of
runs several times slower.
"""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.interface.run_engine import RunEngine
from orchestrator.repository.git_directory import present_place
from orchestrator.state.run_directory import RunDirectory, all_runs

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
    """Name and version of the engine."""
    engine_used: RunEngine | None = None
    """The engine, for commands that use it later; None in records of older versions."""
    workers: tuple[WorkerSpec, ...]

    def public(self) -> dict[str, Any]:
        """Return what users who may not read the run may know: names that they see anyway."""
        kept = {"worker_id", "worktree_dir", "branch_name"}
        names = [worker.model_dump(include=kept) for worker in self.workers]
        known = self.model_dump(mode="json", include={"run_id", "created_at", "top", "base"})
        return {**known, "engine": "", "workers": [{**worker, **_SECRET} for worker in names]}


_Outline = TypeVar("_Outline", bound=RunOutline)


def with_present_top(outline: _Outline, run: RunDirectory) -> _Outline:
    """Return a record with the present path of its checkout: the repository may have been moved."""
    common_dir = run.path.parents[2]
    return outline.model_copy(update={"top": present_place(outline.top, common_dir)})


def read_outline(run: RunDirectory) -> RunOutline | None:
    """Read the outline of a run; return None if its record is missing or has an unknown format.

    The outline of another user's run has no tasks.
    """
    try:
        if run.other_user is not None:
            return with_present_top(RunOutline.model_validate(run.public.read()), run)
        return with_present_top(
            RunOutline.model_validate_json((run.path / RECORD).read_bytes()), run
        )
    except (OSError, ValidationError):
        return None


def engine_used(state_dir: Path, run_id: str) -> RunEngine | None:
    """Return the engine with which a run was started; None if it is not recorded."""
    outline = read_outline(RunDirectory(state_dir / "runs" / run_id))
    return None if outline is None else outline.engine_used


def live_numbers(state_dir: Path) -> frozenset[int]:
    """Return the worker numbers of runs in progress, even of workers whose branches are gone."""
    outlines = (read_outline(run) for run in all_runs(state_dir) if run.is_live())
    return frozenset(spec.worker_id for outline in outlines if outline for spec in outline.workers)


Entry = tuple[RunDirectory, RunOutline, WorkerSpec]
"""A worker, after the directory and the record of the run that it belongs to."""


def holders_of(entries: Iterable[Entry], refs: frozenset[str]) -> dict[int, Entry]:
    """Return, for each worker number, the worker that the number refers to.

    A number refers to the worker of the newest run that used it. If runs name their
    worktrees and branches differently, workers of several runs may exist with the same number; the
    number then refers to the newest of these workers whose worktree or branch still exists.

    Args:
        entries: The workers of all runs, oldest run first.
        refs: The existing branches.
    """
    found: dict[int, Entry] = {}
    for entry in entries:
        spec = entry[2]
        before = found.get(spec.worker_id)
        if (
            before is None
            or spec.collides(before[2])
            or is_left(*entry[1:], refs)
            or not is_left(*before[1:], refs)
        ):
            found[spec.worker_id] = entry
    return found


def is_left(record: RunOutline, spec: WorkerSpec, refs: frozenset[str]) -> bool:
    """Return whether the worktree or the branch of a worker still exists."""
    return (record.top / spec.directory).exists() or spec.ref in refs
