"""What a task that reduces others is told of them: `{{results}}` in its prompt. Pure.

What workers said is data in another one's prompt. It is written as JSON, so that it is plain where
it begins and ends; what a model makes of it nobody can promise.
"""

import itertools
import json
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Any

from orchestrator.results import WorkerResult
from orchestrator.text.sanitize import lines, one_line
from orchestrator.workflow.parsing.templates import place

INPUTS = "/run/orchestrator/inputs"
"""Where a worker finds all of it."""
LIMIT = 64 * 1024
"""Bytes that are put into a prompt."""
MOST = 120 * 1024
"""Bytes of a prompt; it is one argument of a program, and the kernel takes 128 KiB."""
_PLACE = place("results")
_FILES = 50
"""Files that a result names here."""
_LONGEST_PATH = 1000
"""Characters of a file's path."""
_ENOUGH = 500
"""Characters of a summary that are worth more than a list of files."""


def render_prompt(
    task: str,
    results: Sequence[tuple[str, WorkerResult]],
    *,
    places: Collection[int],
    limit: int = LIMIT,
) -> str:
    """Put what came of other tasks in the places of `{{results}}`, as JSON.

    Args:
        task: The prompt; what else is in it stays as it is.
        results: What the tasks came to, by their ids.
        places: Which `{{results}}` of the prompt, counted from 0; any other is plain text.
        limit: Bytes that are put in, in all places together; the longest summaries are cut first.
    """
    if not places:
        return task
    room = min(limit, MOST - len(task.encode("utf-8", "replace"))) // len(places)
    text = _fitting(results, room)
    numbers = itertools.count()
    # Once, by a function: what stands in it is not looked at again.
    return _PLACE.sub(lambda found: text if next(numbers) in places else found[0], task)


def _fitting(results: Sequence[tuple[str, WorkerResult]], room: int) -> str:
    """Return as much of the results as there is room for."""
    longest = max((len(_summary(result)) for _, result in results), default=0)

    def text(cut: int, files: int, count: int = len(results)) -> str:
        return _json(results, cut=cut, files=files, count=count)

    def fits(said: str) -> bool:
        return len(said.encode()) <= room

    for least, files in ((min(_ENOUGH, longest), _FILES), (0, 0)):
        if fits(text(least, files)):
            spare = range(least, longest)
            # The first that is too long, less one; the shortest is known to fit.
            cut = bisect_left(spare, 1, key=lambda size: not fits(text(size + 1, files)))
            return text(least + cut, files)
    count = bisect_left(range(len(results)), 1, key=lambda size: not fits(text(0, 0, size + 1)))
    return text(0, 0, count)


def _json(results: Sequence[tuple[str, WorkerResult]], *, cut: int, files: int, count: int) -> str:
    rows = [_row(name, result, cut=cut, files=files) for name, result in results[:count]]
    if count < len(results):
        rows.append({"more": len(results) - count, "see": f"{INPUTS}/results.json"})
    return json.dumps(rows, ensure_ascii=False, indent=1)


def _row(name: str, result: WorkerResult, *, cut: int, files: int) -> dict[str, Any]:
    summary = _summary(result)
    listed = [one_line(path, limit=_LONGEST_PATH) for path in result.files_modified[:files]]
    if len(summary) > cut:
        summary = f"{summary[:cut]} [cut: the rest is in {INPUTS}/{name}.summary.md]"
    more = result.file_count - len(listed)
    if more > 0:
        listed = [*listed, f"[{more} more: {INPUTS}/{name}.json]"]
    return {
        "id": name,
        "status": result.status,
        "reason": result.reason,
        "summary": summary,
        "files_modified": listed,
        "commit": result.commit,
    }


def _summary(result: WorkerResult) -> str:
    return lines(result.summary or result.message or "")
