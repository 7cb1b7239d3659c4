"""Find the worker to which a number refers, and whether its worktree or branch still exists."""

from collections.abc import Iterable

from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import RunOutline
from orchestrator.worker_spec import WorkerSpec

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
    """Return whether the worktree or the branch of a worker still exists.

    Args:
        record: The record of the worker's run.
        spec: The worker.
        refs: The existing branches.
    """
    return (record.top / spec.directory).exists() or spec.ref in refs
