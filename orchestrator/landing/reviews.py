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
_QUERY = """query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) {
    reviewThreads(last: 50) { nodes { isResolved path line
      comments(last: 20) { nodes { id body author { login } } } } }
    commits(last: 1) { nodes { commit { statusCheckRollup { contexts(last: 100) { nodes {
      ... on CheckRun { databaseId name status conclusion } } } } } } }
  } }
}"""
_DEVELOPER = 30
"""The lowest level of members of a project of GitLab who can push."""

_UNENDED = ("created", "waiting_for_resource", "preparing", "pending", "running")
"""States of jobs of GitLab that will begin by themselves, or run."""


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
    """A job of a CI system that has failed, or has not ended."""

    id: str
    name: str
    has_failed: bool


class Review(Protocol):
    """The reviews of a repository's pull requests."""

    def comments(self, number: str) -> list[Comment]:
        """Return the comments of reviews that are not resolved, oldest first."""

    def may_write(self, author: str) -> bool:
        """Return whether the author of a comment can push to the repository."""

    def jobs(self, number: str) -> list[Job]:
        """Return the jobs for a pull request's latest commit, without those that passed."""

    def log(self, job: Job) -> str:
        """Return the end of a job's log."""


class _OnGitHub:
    def __init__(self, forge: GitHub) -> None:
        self._forge = forge

    def comments(self, number: str) -> list[Comment]:
        """Return the comments of reviews that are not resolved, oldest first."""
        return [
            Comment(
                id=_text(comment, "id")[:100],
                author=_text(comment, "author", "login"),
                path=_text(thread, "path"),
                line=_number(thread, "line"),
                body=_text(comment, "body"),
            )
            for thread in _entries(_at(self._request(number), "reviewThreads", "nodes"))
            if thread.get("isResolved") is False
            for comment in _entries(_at(thread, "comments", "nodes"))
        ]

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

    def jobs(self, number: str) -> list[Job]:
        """Return the jobs for a pull request's latest commit, without those that passed."""
        checks = ("statusCheckRollup", "contexts", "nodes")
        return [
            Job(id=str(key), name=_text(job, "name"), has_failed=ended)
            for commit in _entries(_at(self._request(number), "commits", "nodes"))
            for job in _entries(_at(commit, "commit", *checks))
            if (key := _number(job, "databaseId")) is not None
            for ended in [_text(job, "status") == "COMPLETED"]
            if not ended or _text(job, "conclusion") in ("FAILURE", "TIMED_OUT")
        ]

    def log(self, job: Job) -> str:
        """Return the end of a job's log."""
        words = self._forge.command("run", "view", f"--job={job.id}", "--log-failed")
        return self._forge.end_of(words)

    def _request(self, number: str) -> object:
        owner, _, name = (self._forge.path or "{owner}/{repo}").partition("/")
        # `-F` reads numbers, and the names in braces from the repository; `-f` reads plain text.
        kind = "-f" if self._forge.path else "-F"
        names = (kind, f"owner={owner}", kind, f"name={name}", "-F", f"number={number}")
        said = self._forge.api("graphql", *names, "-f", f"query={_QUERY}")
        return _at(said, "data", "repository", "pullRequest")


class _OnGitLab:
    def __init__(self, forge: GitLab) -> None:
        self._forge = forge

    def comments(self, number: str) -> list[Comment]:
        """Return the comments of reviews that are not resolved, oldest first."""
        talks = self._project(f"merge_requests/{number}/discussions?per_page=100")
        return [
            Comment(
                id=str(_number(note, "id")),
                author=_text(note, "author", "username"),
                path=_text(note, "position", "new_path") or _text(note, "position", "old_path"),
                line=_number(note, "position", "new_line"),
                body=_text(note, "body"),
            )
            for talk in _entries(talks)
            for note in _entries(talk.get("notes"))
            if note.get("resolvable") is True and note.get("resolved") is False
        ]

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

    def jobs(self, number: str) -> list[Job]:
        """Return the jobs for a merge request's latest commit, without those that passed."""
        runs = self._project(f"merge_requests/{number}/pipelines?per_page=1")
        return [
            Job(id=str(key), name=_text(job, "name"), has_failed=_text(job, "status") == "failed")
            for run in list(_entries(runs))[:1]
            for job in _entries(self._project(f"pipelines/{_number(run, 'id')}/jobs?per_page=100"))
            if (key := _number(job, "id")) is not None
            if _text(job, "status") in ("failed", *_UNENDED)
            if job.get("allow_failure") is not True
        ]

    def log(self, job: Job) -> str:
        """Return the end of a job's log."""
        return self._forge.end_of(self._forge.api_command(self._path(f"jobs/{job.id}/trace")))

    def _project(self, path: str) -> object:
        return self._forge.api(self._path(path))

    def _path(self, path: str) -> str:
        return f"projects/{quote(self._forge.path, safe='') or ':id'}/{path}"


def review_of(forge: GitHub | GitLab) -> Review:
    """Return the reviews on a forge."""
    return _OnGitHub(forge) if isinstance(forge, GitHub) else _OnGitLab(forge)


def _entries(found: object) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; nothing of anything else."""
    yield from (
        (entry for entry in found if isinstance(entry, dict)) if isinstance(found, list) else ()
    )


def _at(found: object, *keys: str) -> object:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _text(found: object, *keys: str) -> str:
    text = _at(found, *keys)
    return text if isinstance(text, str) else ""


def _number(found: object, *keys: str) -> int | None:
    number = _at(found, *keys)
    return number if isinstance(number, int) else None
