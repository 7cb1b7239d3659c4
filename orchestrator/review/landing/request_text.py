"""The title and the text of a pull request for a worker's branch."""

import re
from collections.abc import Iterator
from itertools import islice

from orchestrator.base.errors import RepositoryError
from orchestrator.base.results import WorkerResult
from orchestrator.base.text.quantities import count
from orchestrator.base.text.quoting import code_block_for_forge, effects, title, without_effects
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.commits.changes import stat_lines
from orchestrator.repository.git.command import Git
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch
from orchestrator.review.landing.merged import SentCommit

MOST_BODY = 60_000
"""Maximum number of characters of a pull request's text."""
# protection: pr-titles-are-one-short-line
_LONGEST_TITLE = 100
_LONGEST_SUBJECT = 72
_MOST_SENT = 1000
_MOST_SAID = 16 * 1024**2
_OWN_TRAILER = re.compile(r"^Orchestrator-(?:Run|Resolved-In): [0-9a-z-]+$", re.MULTILINE)
_OTHER_AUTHOR = "is by another author"
_LONGEST_TASK = 2000
_MOST_TASK = 8000
_MOST_SUMMARY = 8000
_MOST_STAT = 20_000
_MOST_CHECKS = 50
_MOST_FILES = 200


def commits_to_send(
    git: Git, commit: str, *, without: str, identity: tuple[str, str]
) -> tuple[SentCommit, ...]:
    """Return the commits that `commit` has and `without` lacks, newest first; at most 1000.

    Args:
        git: Git in a repository with both commits.
        commit: The commit that is pushed.
        without: A commit that the remote repository has.
        identity: Name and e-mail address of the user.
    """
    form = "--format=%H%n%an%n%ae%n%cn%n%ce%n%B"
    wanted = ("log", "-z", form, f"--max-count={_MOST_SENT}", commit, f"^{without}")
    said = git.listing(*wanted, limit=_MOST_SAID, cut=True).decode("utf-8", "replace")
    commits = []
    for entry in said.split("\0"):
        if entry.count("\n") < 5:
            continue
        object_id, *people, message = entry.split("\n", 5)
        strange = [*people] != [*identity, *identity]
        # An address has an `@` of its own. The trailers of our own messages do nothing.
        text = _OWN_TRAILER.sub("", "\n".join([message, people[0], people[2]]))
        # protection: pr-pushed-commits-are-listed-with-what-they-do
        sent = SentCommit(
            commit=object_id,
            author=one_line(f"{people[0]} <{people[1]}>", limit=200),
            subject=one_line(message.partition("\n")[0], limit=200),
            effects=(*effects(text), *([_OTHER_AUTHOR] if strange else [])),
        )
        commits.append(sent)
    return tuple(commits)


def acting_commits(
    git: Git, commit: str, *, without: str, identity: tuple[str, str]
) -> tuple[SentCommit, ...]:
    """Return those of `sent_commits` with an effect on a forge besides their author's name."""
    sent = commits_to_send(git, commit, without=without, identity=identity)
    return tuple(commit for commit in sent if {*commit.effects} - {_OTHER_AUTHOR})


def marker(run_id: str, branch: Branch) -> str:
    """Return the invisible line by which a pull request of a worker is recognised."""
    return f"<!-- orchestrator: run {run_id}, worker {branch.worker_id} -->"


def title_of(branch: Branch) -> str:
    """Return the title of a worker's pull request: the first line of its task."""
    return title(branch.task, limit=_LONGEST_TITLE) or f"Worker {branch.worker_id}"


def commit_message(branch: Branch, run_id: str, verb: str, *notes: str) -> bytes:
    """Return the message of a commit with a worker's work, which has no effect on a forge.

    Args:
        branch: The worker's branch.
        run_id: The worker's run.
        verb: First words of the subject, which the worker's number follows.
        notes: Last lines of the message.
    """
    name = f" ({one_line(branch.title, limit=60)})" if branch.title else ""
    subject = f"{verb} {branch.worker_id}{name}: {one_line(branch.task)}"
    parts = [
        title(subject, limit=_LONGEST_SUBJECT),
        without_effects(branch.task[:_LONGEST_TASK]).strip(),
    ]
    parts.append("\n".join([f"Orchestrator-Run: {run_id}", *notes]))
    return ("\n\n".join(parts) + "\n").encode()


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
    parts.append(f"## Task\n\n{_quote(branch.task, _MOST_TASK)}")
    if branch.summary:
        parts.append(f"## What the agent said\n\n{_quote(branch.summary, _MOST_SUMMARY)}")
    stat = "\n".join(_stat(repository, branch))
    parts.append(f"## Changes\n\n{_quote(stat, _MOST_STAT)}")
    if result is not None:
        if result.checks:
            rows = [
                f"{'passed' if check.passed else 'failed'}  {one_line(check.name)}"
                for check in result.checks[:_MOST_CHECKS]
            ]
            parts.append("## Checks\n\n" + _quote("\n".join(rows), _MOST_STAT))
        cost = f"{result.cost:.2f} USD" if result.cost_known else "unknown"
        model = without_effects(one_line(result.model, limit=100)).replace("`", "")
        parts.append(
            f"Cost: {cost}; {count(result.attempts, 'attempt')}; "
            f"model: `{model}`; status: {result.status}"
        )
    return "\n\n".join(parts)[:MOST_BODY] + "\n"


def _quote(text: str, limit: int) -> str:
    return code_block_for_forge(text, limit=limit)


def _stat(repository: Repository, branch: Branch) -> Iterator[str]:
    rows = stat_lines(repository, base=branch.base, tip=branch.commit)
    try:
        for added, removed, path in islice(rows, _MOST_FILES):
            yield f"{one_line(path)} | +{added} -{removed}"
        if next(rows, None) is not None:
            yield f"and more than {_MOST_FILES} files"
    except RepositoryError as error:
        yield f"the changes could not be counted: {one_line(error.message)}"
