"""Messages for a worker from the review of its pull request, and from a CI system.

Comments and logs are hostile: anybody may have written a comment, and the worker's own code wrote
the logs. They are bounded, and quoted as texts that have no effect on a forge or a terminal.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.results import WorkerResult
from orchestrator.base.text.decode import decode
from orchestrator.base.text.log_end import end_of_log
from orchestrator.base.text.quantities import count
from orchestrator.base.text.quoting import code_block_for_forge, without_effects
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.remotes import Remote
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.failing_tests import MOST_BYTES
from orchestrator.review.judging.junit_file import Room, WorkerTest, read_junit
from orchestrator.review.landing.branches import Branch, RunBranches, read_branches
from orchestrator.review.landing.forges import Existing, ForgeError, GitHub, GitLab, find_forge
from orchestrator.review.landing.pull_requests import Published, PullRequestWish, publish
from orchestrator.review.landing.request_text import marker
from orchestrator.review.landing.reviews import Job, Review, review_of
from orchestrator.review.landing.stack import head_of

_MOST_OF_TEXT = 4000
"""Maximum number of characters of one comment or log."""
_MOST_OF_MESSAGE = 80 * 1024
_MOST_QUOTES = 200
"""Maximum number of comments and logs in one message."""
_MOST_LOGS = 100
_MOST_AUTHORS = 50
_MOST_TESTS = 100_000
"""Maximum number of tests in a JUnit file of a CI system."""
_NO_TEXT = re.compile(r"[\0-\x07\x0e-\x1a\x1c-\x1f\ufffd]")
_POLL = 30.0
"""Seconds between two looks at jobs that have not ended."""
_UNTIL_BEGUN = 4
"""Number of looks until which the jobs of a push may still begin."""
_PATIENCE = 3600.0
"""Maximum time, in seconds, for the jobs of a commit."""
_OWN = "<!-- orchestrator:"
_HEAD = (
    "Your work was reviewed. Change the code as the comments below ask, and repair the failed "
    "jobs, as far as that belongs to your task. The texts in blocks are quoted from other people "
    "and programs."
)


@dataclass(frozen=True, kw_only=True)
class Feedback:
    """Comments and failed jobs that a worker was not told before, as a message."""

    message: str = ""
    """Empty if there is nothing new."""
    sources: tuple[str, ...] = ()
    """Names of what the message quotes."""
    strangers: int = 0
    """Number of comments that were left out, because their authors cannot push."""
    rest: int = 0
    """Number of comments and jobs for which the message had no room."""
    unread: tuple[str, ...] = ()
    """What was not read, because there are more comments or jobs than are read."""
    failed: tuple[str, ...] = ()
    """Names of all jobs of the latest commit that failed, also of those that are not new."""
    unended: tuple[str, ...] = ()
    """Names of the jobs of the latest commit that have not ended."""


@dataclass(frozen=True)
class _Quote:
    source: str
    head: str
    text: str

    def __str__(self) -> str:
        return f"{self.head}\n{code_block_for_forge(self.text, limit=_MOST_OF_TEXT)}"


@dataclass(frozen=True, kw_only=True)
class ReviewedRequest:
    """The open pull request of one worker."""

    repository: Repository
    run: str | None
    """The run's id. Default: the newest run with the worker."""
    worker: int
    remote: str | None = None
    """Name of the remote repository. Default: `origin`, or the only one."""
    forge: str | None = None
    """`gh` or `glab`. Default: by the address of the remote."""
    _writers: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def _forge(self) -> GitHub | GitLab:
        address = Remote(self.repository, self.remote).url
        return find_forge(self.repository.top, address, self.forge)

    @cached_property
    def _review(self) -> Review:
        return review_of(self._forge)

    def _branches(self) -> tuple[RunBranches, Branch]:
        chosen = read_branches(self.repository, self.run, (self.worker,))
        return read_branches(self.repository, chosen.run_id), chosen.branches[0]

    @cached_property
    def request(self) -> Existing:
        """Return the request.

        Raises:
            ConfigError: There is no open request, or the program is not installed.
            ForgeError: The program failed.
        """
        run, branch = self._branches()
        head = head_of(run, branch)
        found = self._forge.find(head)
        if found is None or not found.number.isdecimal():
            raise ConfigError(
                f"there is no open pull request of `{one_line(head)}`",
                key="request.none",
                hint=f"`orchestrator pr {self.worker}` creates one",
            )
        return found

    def feedback(self, known: Collection[str], *, anybody: bool = False) -> Feedback:
        """Return what is new.

        Args:
            known: Names of what the worker was told before.
            anybody: Whether to use comments of people who cannot push to the repository.

        Raises:
            ForgeError: The program failed.
        """
        quotes, strangers, hidden, seen = [], 0, 0, {*known}
        comments, unread_comments = self._review.comments(self.request.number)
        for comment in comments:
            source = f"comment {comment.id}"
            # protection: own-comments-are-no-feedback
            if source in seen or comment.body.lstrip().startswith(_OWN):
                continue
            seen.add(source)
            if comment.is_hidden:
                hidden += 1
                continue
            # protection: comments-of-strangers-are-left-out
            if not anybody and not self._may_write(comment.author):
                strangers += 1
                continue
            line = "" if comment.line is None else f", line {comment.line}"
            line += " of an earlier version" if comment.is_outdated else ""
            place = f" on {_name(comment.path)}{line}" if comment.path else ""
            head = f"{comment.kind} by {_name(comment.author)}{place}:"
            quotes.append(_Quote(source, head, comment.body))
        jobs, unread_jobs = self._review.jobs(self.request.number)
        unread = [*filter(None, (unread_comments, unread_jobs))]
        unread += [f"{count(hidden, 'hidden comment')}"] if hidden else []
        failed = {f"job {job.id}": job for job in jobs if job.end}
        fresh = [source for source in failed if source not in known]
        for source in fresh[:_MOST_LOGS]:
            job = failed[source]
            notes = end_of_log(job.notes, limit=_MOST_OF_TEXT)
            log = end_of_log(self._log(job), limit=_MOST_OF_TEXT - len(notes) - 2)
            parts = {"What is known of it": notes, "The end of its log": log}
            what = ", and: ".join(part for part, text in parts.items() if text)
            head = f"The job {_name(job.name)} {job.end}. {what}:"
            text = "\n\n".join(filter(None, parts.values()))
            # protection: no-turn-without-content
            if text:
                quotes.append(_Quote(source, head, text))
            else:
                unread.append(f"why the job {_name(job.name)} {job.end}: there is no log of it")
        told = _told(quotes, unread)
        return replace(
            told,
            rest=told.rest + len(fresh[_MOST_LOGS:]),
            strangers=strangers,
            unread=tuple(unread),
            failed=tuple({one_line(job.name, limit=200): 1 for job in failed.values()}),
            unended=tuple({one_line(job.name, limit=200): 1 for job in jobs if not job.end}),
        )

    def next_feedback(
        self,
        known: Collection[str],
        *,
        anybody: bool = False,
        wait: Callable[[float], object] = time.sleep,
    ) -> Feedback:
        """Return what is new as soon as there is something, or no job runs any more."""
        found = Feedback()
        for look in range(1, int(_PATIENCE / _POLL) + 1):
            found = self.feedback(known, anybody=anybody)
            if found.message or (look >= _UNTIL_BEGUN and not found.unended):
                break
            wait(_POLL)
        return found

    def _may_write(self, author: str) -> bool:
        if author not in self._writers and len(self._writers) < _MOST_AUTHORS:
            self._writers[author] = self._review.may_write(author)
        return self._writers.get(author, False)

    def _log(self, job: Job) -> str:
        if not job.has_log:
            return ""
        try:
            return self._review.log(job)
        except ForgeError:
            # A log may exist only after all jobs: the job is told when it can be read.
            return ""

    def answer(self, result: WorkerResult, feedback: Feedback) -> Published:
        """Push the worker's commits to the request, and comment on what was done.

        Raises:
            OrchestratorError: The push or the program failed.
        """
        run, branch = self._branches()
        wish = PullRequestWish(workers=(self.worker,), target=self.request.base)
        remote = Remote(self.repository, self.remote)
        published = publish(self.repository, run, wish, remote, self._forge)
        commit = published.workers[0].commit
        parts = [
            marker(run.run_id, branch),
            f"An agent was told of {len(feedback.sources)} comments and failed jobs. "
            + (f"The request is now at {commit}." if commit else "It changed nothing."),
        ]
        if result.summary:
            parts.append(code_block_for_forge(result.summary, limit=8000))
        command, stdin = self._forge.comment_command(self.request.number, "\n\n".join(parts))
        self._forge.run(command, stdin)
        return published


def feedback_from_file(path: Path) -> Feedback:
    """Return the failures in a file of a CI system, a log or a JUnit file, as a message.

    Raises:
        ConfigError: The file cannot be read, or has no failures.
    """
    try:
        with open_regular(path, follow=True) as file:
            data = file.read(MOST_BYTES)
            while more := file.read(MOST_BYTES):
                # The mark of the encoding stays, and no character is cut.
                surplus = max(0, len(data) + len(more) - MOST_BYTES + 3) // 4 * 4
                data = data[:4] + (data + more)[4 + surplus :]
    except OSError as error:
        said = error.strerror or "unreadable"
        raise ConfigError(
            f"cannot read `{one_line(str(path))}`: {said}", key="file.unreadable"
        ) from error
    text, tests, problem = decode(data), list[WorkerTest](), ""
    if len(_NO_TEXT.findall(text, max(0, len(text) - 4000))) > len(text[-4000:]) // 4:
        raise ConfigError(
            f"`{one_line(str(path))}` is not text in UTF-8 or UTF-16",
            key="feedback.not-text",
            hint="if the file is compressed, unpack it first",
        )
    is_log = not text.lstrip("\0 \t\r\n").startswith("<")
    if not is_log:
        tests, problem = read_junit(data, Room(cases=_MOST_TESTS, text=4 * _MOST_OF_MESSAGE))
    quotes = [
        _Quote("", f"The test {_name('::'.join(filter(None, (test.suite, test.name))))} failed:",
               "\n".join(filter(None, (test.message, test.text))) or "(The file has no reason.)")
        for test in tests if test.outcome == "failed"
    ]  # fmt: skip
    if (is_log or problem) and not quotes and (end := end_of_log(text, limit=_MOST_OF_TEXT)):
        quotes, problem = [_Quote("", "A job failed. The end of its log:", end)], ""
    if not quotes:
        raise ConfigError(f"there are no failures in `{one_line(str(path))}`", key="feedback.none")
    unread = [f"the rest of the JUnit file: {problem}"] if problem else []
    return replace(_told(quotes, unread), sources=(), unread=tuple(unread))


def _told(quotes: Collection[_Quote], unread: Collection[str] = ()) -> Feedback:
    """Return the first texts as one message, which says what was not read."""
    kept = list(_fitting(quotes))
    if not any(quote.text.strip() for quote in kept):
        return Feedback()
    notes = [f"Not read: {', '.join(unread)}."] if unread else []
    return Feedback(
        message="\n\n".join((_HEAD, *notes, *map(str, kept))),
        sources=tuple(quote.source for quote in kept),
        rest=len(quotes) - len(kept),
    )


def _fitting(quotes: Collection[_Quote]) -> Iterator[_Quote]:
    room = _MOST_OF_MESSAGE - len(_HEAD)
    for quote in islice(quotes, _MOST_QUOTES):
        room -= len(str(quote).encode("utf-8", "replace")) + 2
        # protection: feedback-has-limited-size
        if room < 0:
            return
        yield quote


def _name(text: str) -> str:
    """Return a name of a person, file, test or job, on one line and in code quotes."""
    # protection: names-in-feedback-do-nothing
    return f"`{without_effects(one_line(text, limit=200)).replace('`', '')}`"
