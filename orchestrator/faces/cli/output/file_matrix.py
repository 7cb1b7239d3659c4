"""Show which files were changed by more than one worker."""

from collections import Counter
from collections.abc import Iterable

from orchestrator.base.results import WorkerResult
from orchestrator.base.text.quantities import count
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.cli.output.formats import table

MOST_FILES = 10
"""Default number of files that are shown."""
_MOST_WORKERS = 20
_LONGEST = 60
_CHANGED, _UNCHANGED = "x", "."


def file_matrix(workers: Iterable[WorkerResult], *, most: int = MOST_FILES) -> str:
    """Return a table of files by workers; empty if no two workers changed the same file.

    Files that most workers changed come first.

    Args:
        workers: The results of the workers.
        most: Maximum number of files in the table.
    """
    changed = {worker.worker_id: set(worker.files_modified) for worker in workers}
    numbers = Counter(path for files in changed.values() for path in files)
    several = [path for path, number in numbers.items() if number > 1]
    shared = {path: numbers[path] for path in sorted(several, key=lambda p: (-numbers[p], p))}
    if not shared:
        return ""
    columns = [number for number, files in changed.items() if files & shared.keys()]
    shown = columns[:_MOST_WORKERS]
    rows = [("FILE", *(f"W{number}" for number in shown))]
    for path in list(shared)[:most]:
        marks = (_CHANGED if path in changed[number] else _UNCHANGED for number in shown)
        rows.append((one_line(path, limit=_LONGEST), *marks))
    title = f"{count(len(shared), 'file')} changed by more than one worker:"
    more = [f"and {count(len(shared) - most, 'more file')}"] if len(shared) > most else []
    return "\n".join([title, table(rows, shrink=0), *more])
