"""Insert other tasks' results into a prompt in place of `{{results}}`.

Results are untrusted. They are inserted as JSON, so that it is clear where they begin and end. But
a model may still follow instructions in the results.
"""

import itertools
import json
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Any

from orchestrator.base.results import WorkerResult
from orchestrator.base.text.sanitize import lines, one_line
from orchestrator.config.workflow.parsing.templates import place
from orchestrator.config.workflow.shared_findings import INPUTS

LIMIT = 64 * 1024
"""Maximum number of bytes of all results that are inserted into a prompt."""
MOST = 120 * 1024
"""Maximum size of a prompt in bytes; it is a program's argument, which Linux limits to 128 KiB."""
_PLACE = place("results")
_FILES = 50
"""Maximum number of files that are listed for each result."""
_LONGEST_PATH = 1000
"""Maximum number of characters of a file's path in a list of files."""
_ENOUGH = 500
"""Number of characters of a summary that take precedence over the list of files."""


def render_prompt(
    task: str,
    results: Sequence[tuple[str, WorkerResult]],
    *,
    places: Collection[int],
    limit: int = LIMIT,
) -> str:
    """Replace `{{results}}` in a prompt by the results of other tasks, as JSON.

    Args:
        task: The prompt.
        results: Results of the other tasks, with their ids.
        places: Which occurrences of `{{results}}`, counted from 0, to replace.
        limit: Maximum size of the inserted text in bytes; the longest summaries are shortened
            first.
    """
    if not places:
        return task
    room = min(limit, MOST - len(task.encode("utf-8", "replace"))) // len(places)
    text = _fitting(results, room)
    numbers = itertools.count()
    # A function as replacement: `{{results}}` inside the results is not replaced again.
    # protection: inserted-results-are-not-expanded-again
    # protection: text-that-looks-like-template-is-not-replaced
    return _PLACE.sub(lambda match: text if next(numbers) in places else match[0], task)


def _fitting(results: Sequence[tuple[str, WorkerResult]], room: int) -> str:
    """Return the results as JSON text, shortened to at most `room` bytes."""
    longest = max((len(_summary(result)) for _, result in results), default=0)

    def text(cut: int, files: int, count: int = len(results)) -> str:
        rows = [_row(name, result, cut=cut, files=files) for name, result in results[:count]]
        if count < len(results):
            rows.append({"more": len(results) - count, "see": f"{INPUTS}/results.json"})
        return json.dumps(rows, ensure_ascii=False, indent=1)

    def fits(candidate: str) -> bool:
        # protection: size-of-inserted-results-limited
        return len(candidate.encode()) <= room

    for least, files in ((min(_ENOUGH, longest), _FILES), (0, 0)):
        if fits(text(least, files)):
            spare = range(least, longest)
            # Find the longest summaries that fit; the shortest are known to fit.
            cut = bisect_left(spare, 1, key=lambda size: not fits(text(size + 1, files)))
            return text(least + cut, files)
    count = bisect_left(range(len(results)), 1, key=lambda size: not fits(text(0, 0, size + 1)))
    return text(0, 0, count)


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
    # protection: summaries-are-sanitised
    return lines(result.summary or result.message or "")
