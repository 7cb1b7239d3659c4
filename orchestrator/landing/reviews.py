"""Read the review of a pull request: comments, and the jobs of its CI system.

Anybody may have written what is returned here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from orchestrator.landing.forges import ForgeError, GitHub, GitLab

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_QUERY = """query($owner: String!, $name: String!, $number: Int!, $before: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { %s } }
}"""
_THREADS = """reviewThreads(last: 50, before: $before) {
    pageInfo { hasPreviousPage startCursor }
    nodes { isResolved path line
      comments(last: 50) { pageInfo { hasPreviousPage } nodes { id body author { login } } } } }"""
_CHECKS = """commits(last: 1) { nodes { commit { oid statusCheckRollup { state
    contexts(last: 100, before: $before) {
      pageInfo { hasPreviousPage startCursor }
      nodes {
        ... on CheckRun { databaseId name status conclusion }
        ... on StatusContext { context state targetUrl description } } } } } } }"""
_MOST_PAGES = 10
_LONGEST_CURSOR = 1000
_LONGEST_BODY = 20_000
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
_UNEXPLAINED = "The forge reports no job that explains this."


@dataclass(frozen=True, kw_only=True)
class Comment:
    """A comment of a review that is not resolved. Anybody may have written it."""

    id: str
    author: str
    path: str
    line: int | None
    body: str


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of a CI system that has not passed."""

    id: str
    name: str
    end: str = ""
    """How it ended, such as `failed`; empty if it has not ended."""
    said: str | None = None
    """What the CI system says of a job that has no log; None if there may be a log."""


class Review(Protocol):
    """The reviews of a repository's pull requests."""

    def comments(self, number: str) -> tuple[list[Comment], str]:
        """Return the comments that are not resolved, oldest first, and what was not read.

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
        """Return the comments that are not resolved, and what was not read."""
        found, unread, cut = list[Comment](), "", ""
        for request, has_more in self._pages(number, _THREADS, "reviewThreads"):
            unread = f"discussions before the last {50 * _MOST_PAGES}" if has_more else ""
            threads = [
                thread
                for thread in _entries(_at(request, "reviewThreads", "nodes"))
                if thread.get("isResolved") is False
            ]
            if any(_at(t, "comments", "pageInfo", "hasPreviousPage") is True for t in threads):
                cut = "comments before the last 50 of a discussion"
            found[:0] = (
                Comment(
                    id=_text(comment, "id")[:100],
                    author=_text(comment, "author", "login"),
                    path=_text(thread, "path"),
                    line=_number(thread, "line"),
                    body=_text(comment, "body")[:_LONGEST_BODY],
                )
                for thread in threads
                for comment in _entries(_at(thread, "comments", "nodes"))
            )
        return found, ", ".join(filter(None, (unread, cut)))

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
        found, commit, state, unread = list[Job](), "", "", ""
        place = ("commits", "nodes", 0, "commit")
        checks = (*place, "statusCheckRollup")
        for request, has_more in self._pages(number, _CHECKS, *checks, "contexts"):
            unread = f"jobs before the last {100 * _MOST_PAGES}" if has_more else ""
            commit = _text(request, *place, "oid")[:64]
            state = _text(request, *checks, "state")
            entries = _entries(_at(request, *checks, "contexts", "nodes"))
            found[:0] = (job for entry in entries if (job := _check(entry, commit)))
        if state in ("FAILURE", "ERROR") and not any(job.end for job in found):
            job = Job(id=commit, name="checks of the commit", end="failed", said=_UNEXPLAINED)
            found.append(job)
        return found, unread

    def log(self, job: Job) -> str:
        """Return the end of a job's log."""
        words = self._forge.command("run", "view", f"--job={job.id}", "--log-failed")
        return self._forge.end_of(words)

    def _pages(self, number: str, wanted: str, *place: str | int) -> Iterator[tuple[object, bool]]:
        """Yield the request with each page of a list, newest first, and whether there are more."""
        owner, _, name = (self._forge.path or "{owner}/{repo}").partition("/")
        # `-F` reads numbers, and the names in braces from the repository; `-f` reads plain text.
        kind = "-f" if self._forge.path else "-F"
        names = (kind, f"owner={owner}", kind, f"name={name}", "-F", f"number={number}")
        cursor = ""
        for _ in range(_MOST_PAGES):
            before = ("-f", f"before={cursor}") if cursor else ()
            said = self._forge.api("graphql", *names, *before, "-f", f"query={_QUERY % wanted}")
            request = _at(said, "data", "repository", "pullRequest")
            has_more = _at(request, *place, "pageInfo", "hasPreviousPage") is True
            yield request, has_more
            cursor = _text(request, *place, "pageInfo", "startCursor")
            if not has_more or not 0 < len(cursor) <= _LONGEST_CURSOR:
                return


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
                )
                for talk in talks
                for note in _entries(talk.get("notes"))
                if note.get("resolvable") is True and note.get("resolved") is False
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
            found.append(Job(id=f"pipeline {key}", name="pipeline", end=end, said=_UNEXPLAINED))
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


def _check(check: dict[str, Any], commit: str) -> Job | None:
    """Return a job or a commit status of GitHub; None if it has passed."""
    if "context" in check:
        name, state = _text(check, "context"), _text(check, "state")
        said = "\n".join((_text(check, "description"), _text(check, "targetUrl")))
        end = "" if state in ("PENDING", "EXPECTED") else "failed"
        key = f"{commit} {name[:200]}"
        return None if state in _PASSED else Job(id=key, name=name, end=end, said=said)
    number, end = _number(check, "databaseId"), _text(check, "conclusion")
    if number is None or end in _PASSED:
        return None
    has_ended = _text(check, "status") == "COMPLETED"
    end = _ENDS.get(end, "failed") if has_ended else ""
    return Job(id=str(number), name=_text(check, "name"), end=end)


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
    return number if isinstance(number, int) else None
