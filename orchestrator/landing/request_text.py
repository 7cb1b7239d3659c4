"""The title and the text of a pull request for a worker's branch."""

from collections.abc import Iterator
from itertools import islice

from orchestrator.errors import RepositoryError
from orchestrator.git.changes import stat_lines
from orchestrator.git.repository import Repository
from orchestrator.landing.branches import Branch
from orchestrator.results import WorkerResult
from orchestrator.text.quantities import count
from orchestrator.text.quoting import fenced, title, unlinked
from orchestrator.text.sanitize import one_line

MOST_BODY = 60_000
"""Maximum number of characters of a pull request's text."""
_LONGEST_TITLE = 100
_MOST_TASK = 8000
_MOST_SUMMARY = 8000
_MOST_STAT = 20_000
_MOST_CHECKS = 50
_MOST_FILES = 200


def marker(run_id: str, branch: Branch) -> str:
    """Return the invisible line by which a pull request of a worker is recognised."""
    return f"<!-- orchestrator: run {run_id}, worker {branch.worker_id} -->"


def title_of(branch: Branch) -> str:
    """Return the title of a worker's pull request: the first line of its task."""
    return title(branch.task, limit=_LONGEST_TITLE) or f"Worker {branch.worker_id}"


def body_of(
    repository: Repository,
    run_id: str,
    branch: Branch,
    result: WorkerResult | None,
    *,
    note: str | None = None,
) -> str:
    """Return the text of a worker's pull request, in Markdown.

    Texts of the worker are quoted in code blocks, which they cannot close. Mentions of people and
    issues in the texts have no effect.
    """
    parts = [marker(run_id, branch), *([note] if note else [])]
    parts.append(f"## Task\n\n{_quoted(branch.task, _MOST_TASK)}")
    if branch.summary:
        parts.append(f"## What the agent said\n\n{_quoted(branch.summary, _MOST_SUMMARY)}")
    stat = "\n".join(_stat(repository, branch))
    parts.append(f"## Changes\n\n{_quoted(stat, _MOST_STAT)}")
    if result is not None:
        parts += _facts(result)
    return "\n\n".join(parts)[:MOST_BODY] + "\n"


def _quoted(text: str, limit: int) -> str:
    return fenced(unlinked(text), limit=limit)


def _stat(repository: Repository, branch: Branch) -> Iterator[str]:
    rows = stat_lines(repository, base=branch.base, tip=branch.commit)
    try:
        for added, removed, path in islice(rows, _MOST_FILES):
            yield f"{one_line(path)} | +{added} -{removed}"
        if next(rows, None) is not None:
            yield f"and more than {_MOST_FILES} files"
    except RepositoryError as error:
        yield f"the changes could not be counted: {one_line(error.message)}"


def _facts(result: WorkerResult) -> Iterator[str]:
    if result.checks:
        rows = [
            f"{'passed' if check.passed else 'failed'}  {one_line(check.name)}"
            for check in result.checks[:_MOST_CHECKS]
        ]
        text = "\n".join(rows)
        yield f"## Checks\n\n{_quoted(text, _MOST_STAT)}"
    cost = f"{result.cost:.2f} USD" if result.cost_known else "unknown"
    yield (
        f"Cost: {cost}; {count(result.attempts, 'attempt')}; "
        f"model: {_quoted_inline(result.model)}; status: {result.status}"
    )


def _quoted_inline(text: str) -> str:
    return f"`{unlinked(one_line(text, limit=100)).replace('`', '')}`"
