"""Read the review of a pull request: comments, and the jobs of its CI system.

Anybody may have written what is returned here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from orchestrator.review.landing.forges import ForgeError, GitHub, GitLab

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_QUERY = """query($owner: String!, $name: String!, $number: Int!%s) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { %s } }
}"""
_COMMENT = "id body isMinimized author { login }"
_TALKS = """reviewThreads(last: 50, before: $before) {
    pageInfo { hasPreviousPage startCursor }
    nodes { isResolved isOutdated path line originalLine
      comments(last: 50) { pageInfo { hasPreviousPage } nodes { %s } } } }
  reviews(last: 100, before: $reviews) {
    pageInfo { hasPreviousPage startCursor } nodes { state %s } }
  comments(last: 100, before: $comments) {
    pageInfo { hasPreviousPage startCursor } nodes { %s } }""" % ((_COMMENT,) * 3)
_CHECKS = """commits(last: 1) { nodes { commit { oid statusCheckRollup { state
    contexts(last: 100, before: $before) {
      pageInfo { hasPreviousPage startCursor }
      nodes {
        ... on CheckRun { databaseId name status conclusion title summary text
          annotations(first: 20) { totalCount
            nodes { path location { start { line } } title message } } }
        ... on StatusContext { context state targetUrl description } } } } } } }"""
_TALKS_READ = {
    "reviews": ("reviews", 100),
    "comments": ("comments on the request", 100),
    "before": ("discussions", 50),
}
"""Each list of `_TALKS`, by the variable of its page, with the number of entries of a page."""
_MOST_PAGES = 10
_LONGEST_CURSOR = 1000
_LONGEST_BODY = 20_000
_LONGEST_NOTES = 2000
"""Maximum number of characters of what a check says beside its log."""
_REVIEWS = {
    "CHANGES_REQUESTED": "Review that requests changes",
    "APPROVED": "Review that approves",
    "COMMENTED": "Review",
}
"""States of reviews that are submitted and not dismissed."""
_OF_PAGE = 100
"""Number of entries of a page of GitLab."""
_DEVELOPER = 30
"""The lowest level of members of a project of GitLab who can push."""

_UNENDED = ("created", "waiting_for_resource", "preparing", "pending", "running", "canceling")
"""States of jobs of GitLab that will begin by themselves, or run."""
_PASSED = ("SUCCESS", "NEUTRAL", "SKIPPED")
"""Conclusions of GitHub with which a commit is green. There may be new ones without success."""
_CANCELLED = "was cancelled or took too long"
_ENDS = {
    # GitHub also calls a job so whose time ran out.
    "CANCELLED": _CANCELLED,
    "canceled": _CANCELLED,
    "TIMED_OUT": "took too long",
    "ACTION_REQUIRED": "waits for an action of somebody",
    "STARTUP_FAILURE": "could not start",
}
_NO_REASON = re.compile(r"Process completed with exit code \d+\.?")
"""An annotation of every job of GitHub that failed."""
_UNEXPLAINED = "The forge reports no job that explains this."


@dataclass(frozen=True, kw_only=True)
class Comment:
    """A comment that is not resolved, or the text of a review. Anybody may have written it."""

    id: str
    author: str
    body: str
    kind: str = "Comment"
    path: str = ""
    """File that the comment is about; empty if it is about the whole request."""
    line: int | None = None
    is_outdated: bool = False
    """Whether the lines were changed since; the number of the line is that of an older version."""
    is_hidden: bool = False
    """Whether the forge does not show the comment to everybody."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of a CI system that has not passed."""

    id: str
    name: str
    end: str = ""
    """How it ended, such as `failed`; empty if it has not ended."""
    notes: str = ""
    """What the CI system says of a job beside its log, such as annotations of lines."""
    has_log: bool = True
    """Whether there may be a log."""


class Review(Protocol):
    """The reviews of a repository's pull requests."""

    def comments(self, number: str) -> tuple[list[Comment], str]:
        """Return the texts of reviews, comments that are not resolved, and what was not read.

        The text on what was not read is empty if everything was.
        """

    def may_write(self, author: str) -> bool:
        """Return whether the author of a comment can push to the repository."""

    def jobs(self, number: str) -> tuple[list[Job], str]:
        """Return the jobs for the latest commit that have not passed, and what was not read.

        The text on what was not read is empty if everything was.
        """

    def log(self, job: Job) -> str:
        """Return the end of a job's log."""


class _OnGitHub:
    def __init__(self, forge: GitHub) -> None:
        self._forge = forge

    def comments(self, number: str) -> tuple[list[Comment], str]:
        """Return the texts of reviews, the open comments, and what was not read."""
        lists = {"before": "reviewThreads", "reviews": "reviews", "comments": "comments"}
        pages, cut = self._pages(number, _TALKS, {key: (name,) for key, name in lists.items()})
        found = {key: list[Comment]() for key in _TALKS_READ}
        unread = {f"{what} before the last {size * _MOST_PAGES}": 1
                  for key, (what, size) in _TALKS_READ.items() if key in cut}  # fmt: skip
        for request, keys in pages:
            new = {key: list[Comment]() for key in keys}
            for review in _entries(_at(request, "reviews", "nodes")):
                kind = _REVIEWS.get(_text(review, "state"))
                if kind and _text(review, "body").strip():
                    new.get("reviews", []).append(_comment(review, kind=kind))
            for comment in _entries(_at(request, "comments", "nodes")):
                new.get("comments", []).append(_comment(comment))
            for thread in _entries(_at(request, "reviewThreads", "nodes")):
                if thread.get("isResolved") is not False:
                    continue
                if _at(thread, "comments", "pageInfo", "hasPreviousPage") is True:
                    unread["comments before the last 50 of a discussion"] = 1
                for comment in _entries(_at(thread, "comments", "nodes")):
                    new.get("before", []).append(_comment(comment, thread))
            for key, comments in new.items():
                found[key][:0] = comments
        return [comment for comments in found.values() for comment in comments], ", ".join(unread)

    def may_write(self, author: str) -> bool:
        """Return whether the author of a comment can push to the repository."""
        if not _NAME.fullmatch(author):
            return False
        path = f"repos/{self._forge.path or '{owner}/{repo}'}/collaborators/{author}/permission"
        try:
            said = self._forge.api(path)
        except ForgeError:
            return False
        return _text(said, "permission") in ("admin", "maintain", "write")

    def jobs(self, number: str) -> tuple[list[Job], str]:
        """Return the jobs and commit statuses that have not passed, and what was not read."""
        found, commit, state = list[Job](), "", ""
        place = ("commits", "nodes", 0, "commit")
        checks = (*place, "statusCheckRollup")
        pages, cut = self._pages(number, _CHECKS, {"before": (*checks, "contexts")})
        for request, _ in pages:
            commit = _text(request, *place, "oid")[:64]
            state = _text(request, *checks, "state")
            entries = _entries(_at(request, *checks, "contexts", "nodes"))
            found[:0] = (job for entry in entries if (job := _check(entry, commit)))
        if state in ("FAILURE", "ERROR") and not any(job.end for job in found):
            found.append(_unexplained(commit, "checks of the commit", "failed"))
        return found, f"jobs before the last {100 * _MOST_PAGES}" if cut else ""

    def log(self, job: Job) -> str:
        """Return the end of a job's log."""
        words = self._forge.command("run", "view", f"--job={job.id}", "--log-failed")
        return self._forge.end_of(words)

    def _pages(
        self, number: str, wanted: str, lists: Mapping[str, Sequence[str | int]]
    ) -> tuple[list[tuple[object, set[str]]], set[str]]:
        """Return the request with each page of some lists, and the lists that were not read whole.

        Args:
            number: Number of the request.
            wanted: Fields of the request, with a variable for the page of each list.
            lists: Place of each list, by its variable.

        Returns:
            The pages, newest first, each with the lists of which it has entries.
        """
        owner, _, name = (self._forge.path or "{owner}/{repo}").partition("/")
        # `-F` reads numbers, and the names in braces from the repository; `-f` reads plain text.
        kind = "-f" if self._forge.path else "-F"
        names = (kind, f"owner={owner}", kind, f"name={name}", "-F", f"number={number}")
        query = _QUERY % ("".join(f", ${key}: String" for key in lists), wanted)
        pages, before, cut = list[tuple[object, set[str]]](), dict[str, str](), set[str]()
        left = {*lists}
        while left and len(pages) < _MOST_PAGES:
            cursors = [word for key, at in before.items() for word in ("-f", f"{key}={at}")]
            said = self._forge.api("graphql", *names, *cursors, "-f", f"query={query}")
            request = _at(said, "data", "repository", "pullRequest")
            pages.append((request, left))
            place = {key: (*lists[key], "pageInfo") for key in left}
            cut -= left
            cut |= {key for key in left if _at(request, *place[key], "hasPreviousPage") is True}
            new = {key: _text(request, *place[key], "startCursor") for key in left & cut}
            before |= {key: at for key, at in new.items() if 0 < len(at) <= _LONGEST_CURSOR}
            left = {key for key in new if before.get(key) == new[key]}
        return pages, cut


class _OnGitLab:
    def __init__(self, forge: GitLab) -> None:
        self._forge = forge

    def comments(self, number: str) -> tuple[list[Comment], str]:
        """Return the comments that are not resolved, and what was not read."""
        found, unread = list[Comment](), ""
        most = _OF_PAGE * _MOST_PAGES
        for talks, has_more in self._pages(f"merge_requests/{number}/discussions"):
            unread = f"discussions after the first {most}" if has_more else ""
            found += (
                Comment(
                    id=str(_number(note, "id")),
                    author=_text(note, "author", "username"),
                    path=_text(note, "position", "new_path") or _text(note, "position", "old_path"),
                    line=_number(note, "position", "new_line"),
                    body=_text(note, "body")[:_LONGEST_BODY],
                    is_hidden=True in (note.get("internal"), note.get("confidential")),
                )
                for talk in talks
                for note in _entries(talk.get("notes"))
                # What GitLab itself wrote, such as that commits were added, asks for nothing.
                if note.get("system") is not True
                if note.get("resolvable") is not True or note.get("resolved") is False
            )
        return found, unread

    def may_write(self, author: str) -> bool:
        """Return whether the author of a comment can push to the repository."""
        if not _NAME.fullmatch(author):
            return False
        try:
            members = _entries(self._project(f"members/all?query={author}"))
        except ForgeError:
            return False
        named = (member for member in members if member.get("username") == author)
        return any((_number(member, "access_level") or 0) >= _DEVELOPER for member in named)

    def jobs(self, number: str) -> tuple[list[Job], str]:
        """Return the jobs of the latest pipeline that have not passed, and what was not read."""
        pipelines = self._project(f"merge_requests/{number}/pipelines?per_page=1")
        run = next(_entries(pipelines), {})
        if (key := _number(run, "id")) is None:
            return [], ""
        found, unread = list[Job](), ""
        for jobs, has_more in self._pages(f"pipelines/{key}/jobs"):
            unread = f"jobs before the last {_OF_PAGE * _MOST_PAGES}" if has_more else ""
            found += (
                Job(id=str(job_id), name=_text(job, "name"), end=_end(job))
                for job in jobs
                if (job_id := _number(job, "id")) is not None
                if _text(job, "status") in ("failed", "canceled", *_UNENDED)
                if job.get("allow_failure") is not True
            )
        # Jobs of other pipelines and of other systems are not in the list.
        end = _end(run)
        is_red = _text(run, "status") in ("failed", "canceled", *_UNENDED)
        if is_red and not any(bool(job.end) == bool(end) for job in found):
            found.append(_unexplained(f"pipeline {key}", "pipeline", end))
        return found, unread

    def log(self, job: Job) -> str:
        """Return the end of a job's log."""
        return self._forge.end_of(self._forge.api_command(self._path(f"jobs/{job.id}/trace")))

    def _pages(self, path: str) -> Iterator[tuple[list[dict[str, Any]], bool]]:
        """Yield the pages of a list, and whether there may be more."""
        for page in range(1, _MOST_PAGES + 1):
            found = list(_entries(self._project(f"{path}?per_page={_OF_PAGE}&page={page}")))
            has_more = len(found) >= _OF_PAGE
            yield found, has_more
            if not has_more:
                return

    def _project(self, path: str) -> object:
        return self._forge.api(self._path(path))

    def _path(self, path: str) -> str:
        return f"projects/{quote(self._forge.path, safe='') or ':id'}/{path}"


def review_of(forge: GitHub | GitLab) -> Review:
    """Return the reviews on a forge."""
    return _OnGitHub(forge) if isinstance(forge, GitHub) else _OnGitLab(forge)


def _comment(
    comment: Mapping[str, Any], thread: Mapping[str, Any] | None = None, *, kind: str = "Comment"
) -> Comment:
    """Return a comment of GitHub."""
    line = _number(thread, "line")
    return Comment(
        id=_text(comment, "id")[:100],
        author=_text(comment, "author", "login"),
        body=_text(comment, "body")[:_LONGEST_BODY],
        kind=kind,
        path=_text(thread, "path"),
        line=_number(thread, "originalLine") if line is None else line,
        is_outdated=_at(thread, "isOutdated") is True,
        is_hidden=comment.get("isMinimized") is True,
    )


def _check(check: dict[str, Any], commit: str) -> Job | None:
    """Return a job or a commit status of GitHub; None if it has passed."""
    if "context" in check:
        name, state = _text(check, "context"), _text(check, "state")
        said = _text(check, "description").strip()
        end = "" if state in ("PENDING", "EXPECTED") else "failed"
        # An address alone says nothing to a worker, which cannot open it.
        notes = said and f"{said}\n{_text(check, 'targetUrl')}"
        job = Job(id=f"{commit} {name[:200]}", name=name, end=end, notes=notes, has_log=False)
        return None if state in _PASSED else job
    number, end = _number(check, "databaseId"), _text(check, "conclusion")
    if number is None or end in _PASSED:
        return None
    has_ended = _text(check, "status") == "COMPLETED"
    end = _ENDS.get(end, "failed") if has_ended else ""
    return Job(id=str(number), name=_text(check, "name"), end=end, notes=_notes(check))


def _notes(check: dict[str, Any]) -> str:
    """Return what a check of GitHub says beside its log: its summary, and annotations of lines."""
    said = [text for key in ("title", "summary", "text") if (text := _text(check, key).strip())]
    notes = [*_entries(_at(check, "annotations", "nodes"))]
    for note in notes:
        message = _text(note, "message").strip()
        if message and not _NO_REASON.fullmatch(message):
            line = _number(note, "location", "start", "line")
            place = f"{_text(note, 'path')}:{line}" if line is not None else _text(note, "path")
            said.append(": ".join(filter(None, (place, _text(note, "title"), message))))
    text = "\n".join(said)
    rest = (_number(check, "annotations", "totalCount") or 0) - len(notes)
    if rest > 0 or len(text) > _LONGEST_NOTES:
        text = f"{text[:_LONGEST_NOTES]}\n(The forge shows more.)"
    return text


def _unexplained(key: str, name: str, end: str) -> Job:
    return Job(id=key, name=name, end=end, notes=_UNEXPLAINED, has_log=False)


def _end(job: dict[str, Any]) -> str:
    """Return how a job or a pipeline of GitLab ended; empty if it has not ended."""
    state = _text(job, "status")
    return "" if state in _UNENDED else _ENDS.get(state, "failed")


def _entries(found: object) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; nothing of anything else."""
    yield from (
        (entry for entry in found if isinstance(entry, dict)) if isinstance(found, list) else ()
    )


def _at(found: object, *keys: str | int) -> object:
    for key in keys:
        if isinstance(key, int):
            found = found[key] if isinstance(found, list) and key < len(found) else None
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return found


def _text(found: object, *keys: str | int) -> str:
    text = _at(found, *keys)
    return text if isinstance(text, str) else ""


def _number(found: object, *keys: str) -> int | None:
    number = _at(found, *keys)
    return number if isinstance(number, int) and not isinstance(number, bool) else None
