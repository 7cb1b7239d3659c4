"""Publish the branches of workers: push each to a remote repository, and open a pull request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.remotes import Remote
from orchestrator.repository.repository import Repository
from orchestrator.repository.settings import files_without_filter, some_paths
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.review.landing.exclusion import Exclusion, exclusion
from orchestrator.review.landing.forges import Existing, Forge, Request, shell_text
from orchestrator.review.landing.merged import SentCommit
from orchestrator.review.landing.request_text import body_of, marker, title_of
from orchestrator.review.landing.stack import Place, Stack
from orchestrator.state.run_directory import RunDirectory

Action = Literal["created", "updated", "pushed", "contained"]


class PublishedWorker(BaseModel):
    """The outcome of publishing one worker's branch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker_id: int
    action: Action
    """`created` or `updated` (the pull request), `pushed` (the branch only, because someone changed
    the pull request's text), or `contained` (the target branch already has the work).
    """
    head: str | None = None
    """Branch on the remote repository."""
    base: str | None = None
    """Branch into which the pull request is to be merged."""
    commit: str | None = None
    """The commit that was pushed."""
    url: str | None = None
    note: str | None = None
    """A note on the place of the pull request in a stack, or on work that a judgement excludes."""
    sent: tuple[SentCommit, ...] = ()
    """The pushed commits that the target lacks, newest first; at most 1000."""
    commands: tuple[str, ...] = ()
    """With `--dry-run`: the commands that would run."""


class Published(BaseModel):
    """The output of `orchestrator pr --json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    target: str
    remote: str
    dry_run: bool
    workers: tuple[PublishedWorker, ...]


@dataclass(frozen=True, kw_only=True)
class PullRequestWish:
    """How the branches of workers are published."""

    workers: tuple[int, ...]
    """Numbers of the workers whose branches are published."""
    target: str
    """Branch of the remote repository into which the work is to be merged."""
    stack: bool = False
    """Whether the pull request of a worker that builds on another goes into the other's branch."""
    keep_commits: bool = False
    """Whether the workers' own commits are pushed, not one commit with all their work."""
    is_best: bool = False
    """Whether a judgement chose the worker, and no person."""
    draft: bool = False
    dry_run: bool = False
    unfiltered: bool = False
    """Whether files are pushed that a required filter of git would have changed."""


def publish(
    repository: Repository,
    run: RunBranches,
    wish: PullRequestWish,
    remote: Remote,
    forge: Forge,
) -> Published:
    """Push the branches of workers, and create or update a pull request for each.

    Args:
        repository: The user's repository.
        run: The run with all its branches.
        wish: How the branches are published.
        remote: The remote repository.
        forge: The program that manages pull requests.

    Raises:
        ConfigError: The remote repository lacks the target branch, or a worker has no commits.
        RepositoryError: A branch could not be pushed.
        ForgeError: The program failed. Earlier pushes and pull requests remain, and a repeated
            call continues after them.
    """
    if wish.target not in remote.heads:
        raise ConfigError(
            f"remote `{remote.name}` has no branch `{one_line(wish.target)}`",
            key="remote.no-branch",
            hint="name the branch to merge into with `--into`",
        )
    remote.fetch(wish.target)
    publisher = _Publisher(repository, run, wish, remote, forge)
    return Published(
        run_id=run.run_id,
        target=wish.target,
        remote=remote.name,
        dry_run=wish.dry_run,
        workers=tuple(publisher.all_of(wish.workers)),
    )


class _Publisher:
    def __init__(
        self,
        repository: Repository,
        run: RunBranches,
        wish: PullRequestWish,
        remote: Remote,
        forge: Forge,
    ) -> None:
        self._repository = repository
        self._run = run
        self._wish = wish
        self._remote = remote
        self._forge = forge
        self._stack = Stack(repository, run, wish.target, remote, keeps_commits=wish.keep_commits)

    def _exclusion(self, branch: Branch) -> Exclusion | None:
        onto = self._remote.heads[self._wish.target]
        return exclusion(self._repository, self._run, branch, onto)

    def all_of(self, chosen: Sequence[int]) -> Iterator[PublishedWorker]:
        """Publish the chosen workers, each after the workers that it builds on.

        Raises:
            ConfigError: A required filter of git did not run for files of a worker, or the best
                worker's branch contains work that a judgement excludes.
        """
        for branch in self._run.branches:
            if branch.worker_id not in chosen:
                continue
            if not self._wish.unfiltered:
                files = files_without_filter(self._repository, base=branch.base, tip=branch.commit)
                if files:
                    raise ConfigError(
                        "required filters of git did not run for files of worker "
                        f"{branch.worker_id}: {some_paths(files)}",
                        key="worker.unfiltered",
                        hint="`--unfiltered` publishes them as they are",
                    )
            # protection: best-worker-is-not-published-with-excluded-work-below-it
            if self._wish.is_best and (found := self._exclusion(branch)):
                raise ConfigError(
                    f"worker {branch.worker_id} is not published: {found.said}",
                    key="worker.unpublished",
                    hint=f"`orchestrator pr {self._run.run_id} {branch.worker_id}` publishes it",
                )
        for place in self._stack.places(chosen, stacked=self._wish.stack):
            yield self._publish(place)

    def _publish(self, place: Place) -> PublishedWorker:
        branch = place.branch
        if place.commit is None:
            return PublishedWorker(worker_id=branch.worker_id, action="contained", note=place.note)
        found = self._forge.find(place.head)
        action, command, stdin = self._step(place, found)
        excluded = self._exclusion(branch)
        notes = (place.note, excluded.said if excluded else None)
        done = PublishedWorker(
            worker_id=branch.worker_id,
            action=action,
            head=place.head,
            base=place.base,
            commit=place.commit,
            url=found.url if found else None,
            note="; ".join(note for note in notes if note) or None,
            sent=place.sent,
        )
        is_there = self._remote.heads.get(place.head) == place.commit
        if self._wish.dry_run:
            push = ["git", *self._remote.push_command(place.commit, place.head)]
            shown = [] if is_there else [shell_text(push, "")]
            shown += [shell_text(command, stdin)] if command else []
            return done.model_copy(update={"commands": tuple(shown)})
        if not is_there:
            self._remote.push(place.commit, place.head)
        url = self._forge.run(command, stdin) if command else None
        return done.model_copy(update={"url": done.url or url})

    def _step(self, place: Place, found: Existing | None) -> tuple[Action, list[str], str]:
        """Return the action for a worker's pull request, its command, and the command's stdin."""
        branch = place.branch
        directory = RunDirectory(self._repository.state_dir / "runs" / self._run.run_id)
        result = directory.result(branch.worker_id)
        request = Request(
            head=place.head,
            base=place.base,
            title=title_of(branch),
            body=body_of(self._repository, self._run.run_id, branch, result, note=place.note),
            draft=self._wish.draft,
        )
        if found is None:
            return "created", *self._forge.create_command(request)
        # protection: pr-texts-that-someone-changed-are-kept
        ours = found.body.lstrip().startswith(marker(self._run.run_id, place.branch))
        if not ours:
            return "pushed", [], ""
        return "updated", *self._forge.update_command(found.number, request)
