"""Print the runs of a repository."""

from datetime import UTC, datetime
from json import dumps
from pathlib import Path

import humanize

from orchestrator.base.text.quantities import size
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.cli.output.formats import kept_line, table, terminal_width, title_of
from orchestrator.faces.cli.output.messages import show, show_json
from orchestrator.repository.repository import Repository
from orchestrator.state.record.listing import ListedRun, ListedWorker, list_runs
from orchestrator.state.record.states import RunState

_HEADING = ("WORKER", "TASK", "STATUS", "BRANCH", "WORKTREE", "CONTAINER", "DISK")
_OPTIONAL = (5, 4, 3)
"""Columns that a narrow terminal does not show: CONTAINER, WORKTREE, BRANCH."""
_TASK = 40
_NONE = "-"
_ID = 12
"""Number of characters of a container's id that are shown, the same as in container engines' own
lists.
"""


def show_runs(repository: Repository, *, everything: bool, as_json: bool) -> bool:
    """Print runs as tables or as one JSON object; return False if nothing was printed.

    Args:
        repository: The repository.
        everything: Whether to include runs of which only the record is left.
        as_json: Whether to print a JSON object, even without runs.
    """
    listing = list_runs(repository, everything=everything)
    if as_json:
        show_json(dumps(listing.model_dump(mode="json"), indent=2))
    elif listing.runs:
        show("\n\n".join(_run(run, repository.top) for run in listing.runs))
    return as_json or bool(listing.runs)


def _run(run: ListedRun, top: Path) -> str:
    since = run.created_at and humanize.naturaldelta(datetime.now(UTC) - run.created_at)
    began = f", started {since} ago" if since else ""
    if run.owner is not None:
        state = run.state.value if run.state is RunState.RUNNING else "not running"
        return f"{run.run_id}  run of {run.owner}, not readable, {state}{began}"
    rows = [_HEADING, *(_row(worker, top) for worker in run.workers)]
    heading = f"{run.run_id}  {run.state.value}{began}"
    kept = [kept_line(worker.kept_refs) for worker in run.workers if worker.kept_refs]
    return "\n".join([heading, table(rows, width=terminal_width(), optional=_OPTIONAL), *kept])


def _row(worker: ListedWorker, top: Path) -> tuple[str, ...]:
    used, worktree = size(worker.disk), _NONE
    if worker.worktree_path is not None:
        path = Path(worker.worktree_path)
        worktree = path.name if path.parent == top else str(path)
    return (
        title_of(worker.worker_id, worker.name),
        one_line(worker.task, limit=_TASK),
        worker.outcome,
        worker.branch or _NONE,
        worktree,
        (worker.container or _NONE)[:_ID],
        used if worker.disk_complete else f"> {used}",
    )
