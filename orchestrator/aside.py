"""What workers wrote aside: in the state directory of their run, not in the user's tree."""

from collections.abc import Collection, Sequence

from orchestrator.record import RunDirectory
from orchestrator.remains import RecordedWorker
from orchestrator.workspace import remove_tree

_ASIDE = ("upper", "copy", "overlay")
_REFUSED = ("git", "harvest", "out")


def drop_scratch(
    run: RunDirectory,
    workers: Sequence[RecordedWorker],
    *,
    present: Collection[int],
    refused_too: Collection[int],
) -> None:
    """Drop what the workers of a run that is over need no more; records and logs stay.

    Args:
        run: The run, its lease held.
        workers: All of its workers.
        present: Numbers of those which still have a worktree or a branch.
        refused_too: Numbers of those whose work is dropped even where it was never let in.
    """
    unfinished = {worker.number for worker in workers if run.result(worker.number) is None}
    if unfinished.isdisjoint(present):
        remove_tree(run.objects)
    for worker in workers:
        if worker.number not in present:
            _drop(run, worker.number, refused_too=worker.number in refused_too)


def _drop(run: RunDirectory, number: int, *, refused_too: bool) -> None:
    state = run.worker(number)
    wrote = any((state / name).exists() for name in ("upper", "copy"))
    if wrote and (state / "git").exists() and not refused_too:
        return
    for name in (*_ASIDE, *_REFUSED):
        if (state / name).exists():
            remove_tree(state / name)
