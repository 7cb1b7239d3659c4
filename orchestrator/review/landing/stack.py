"""Decide which commit of each worker becomes a pull request, and into which branch.

In a stack, the pull request of a worker goes into the branch of the worker that it builds on, its
parent. After the parent was merged into the target branch, the pull request goes into the target
branch. If the parent was merged as other commits (a squash), the worker's branch also gets a merge
with the target branch in which only the worker's own changes remain. Nothing is rebased, so that no
push needs force.

A worker's own commits are published only if the user asks for that: their messages and authors are
the worker's, and a forge acts on them in the user's name. By default one commit has all the work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.base.errors import ConfigError, GitCommandError
from orchestrator.base.files.owner import own_place
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.commits.merge_tree import (
    merge_base,
    merge_commits,
    quarantine,
    require_git,
)
from orchestrator.repository.git.command import Git
from orchestrator.repository.incoming.quarantine import check_trees
from orchestrator.repository.incoming.sealed_commits import import_commits, signature, write_commit
from orchestrator.repository.remotes import Remote
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.review.landing.merged import SentCommit
from orchestrator.review.landing.request_text import commit_message, commits_to_send

_TIMEOUT = 60.0
_MOST_COMMITS = 100
"""Maximum number of the target's latest commits that are compared with a branch."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The branches and the commit of one pull request in a stack of pull requests."""

    branch: Branch
    head: str
    """Branch of the remote repository for the worker's commits."""
    base: str
    """Branch into which the pull request is to be merged."""
    commit: str | None
    """The commit to push; None if the target has the work already."""
    note: str | None = None
    """What a reader of the pull request should know about the stack."""
    sent: tuple[SentCommit, ...] = ()
    """The commits that the remote branch gets and the target lacks, newest first."""


def head_of(run: RunBranches, branch: Branch) -> str:
    """Return the name of a worker's branch on the remote repository."""
    # Numbers of workers are used again in other clones and after a cleanup.
    return branch.branch if branch.is_named else f"{branch.branch}-{run.run_id}"


class Stack:
    """Decides the pull request of each worker of a run, by what the target branch contains."""

    def __init__(
        self,
        repository: Repository,
        run: RunBranches,
        target: str,
        remote: Remote,
        *,
        keeps_commits: bool = False,
    ) -> None:
        """Store the arguments.

        Args:
            repository: The user's repository, which has the target's commit.
            run: The run with all its branches.
            target: Branch of the remote repository into which the work is to be merged.
            remote: The remote repository.
            keeps_commits: Whether the workers' own commits are published.
        """
        require_git("to publish a stack of branches", "publish the branches by hand")
        self._repository = repository
        self._run = run
        self._target = target
        self._remote = remote
        self._onto = remote.heads[target]
        self._keeps_commits = keeps_commits
        self._parents: dict[int, Branch | None] = {}
        """The worker on which each worker of a stack builds; empty without a stack."""
        self._sealed: dict[int, str] = {}
        """The published commit of each worker."""
        self._place_of_work = own_place(repository.state_dir, "publishing")
        self._made: set[str] = set()
        """Commits that only the quarantine has."""
        self._branches = {
            branch.worker_id: branch for branch in run.branches if not branch.is_empty
        }
        self._has: dict[tuple[str, str], bool] = {}
        """Whether a commit contains another one."""
        self._landed: dict[str, bool] = {}
        """Whether the target has the changes of a commit."""

    def places(self, chosen: Sequence[int], *, stacked: bool) -> Iterator[Place]:
        """Yield each worker's place in the stack, after the places of workers that it builds on.

        Raises:
            ConfigError: A worker committed nothing, or builds on a worker that is not published.
        """
        empty = [number for number in chosen if number not in self._branches]
        if empty:
            raise ConfigError(
                f"worker {empty[0]} committed nothing: there is nothing to publish",
                key="worker.no-changes",
            )
        with quarantine(
            self._repository, own_place(self._repository.state_dir, "publishing")
        ) as git:
            commits = [self._onto, *(branch.commit for branch in self._branches.values())]
            self._has = containment(git, commits)
            if stacked:
                self._parents = {n: self._parent(n) for n in self._branches}
            for number in sorted(chosen, key=lambda n: (len(self._below(n)), n)):
                place = self._place(git, self._branches[number], chosen)
                if (commit := place.commit) is not None:
                    if commit in self._made:
                        known = [place.branch.commit, self._onto]
                        git_dir = self._place_of_work / "git"
                        import_commits(self._repository, git, git_dir, commit, known)
                    identity = self._repository.identity()
                    sent = commits_to_send(git, commit, without=self._onto, identity=identity)
                    place = replace(place, sent=sent)
                yield place

    def head(self, branch: Branch) -> str:
        """Return the name of a worker's branch on the remote repository."""
        return head_of(self._run, branch)

    def _below(self, number: int) -> list[Branch]:
        """Return the branches that a worker's branch contains."""
        tip = self._branches[number].commit
        return [
            branch
            for branch in self._branches.values()
            if branch.commit != tip and self._has[tip, branch.commit]
        ]

    def _parent(self, number: int) -> Branch | None:
        """Return the branch that a worker directly builds on; None if there are several or none."""
        below = self._below(number)
        nearest = [
            branch
            for branch in below
            if not any(
                other is not branch and self._has[other.commit, branch.commit] for other in below
            )
        ]
        return nearest[0] if len(nearest) == 1 else None

    def _place(self, git: Git, branch: Branch, chosen: Sequence[int]) -> Place:
        head, parent = self.head(branch), self._parents.get(branch.worker_id)
        if self._has_landed(git, branch):
            note = f"`{self._target}` has the work already"
            return Place(branch=branch, head=head, base=self._target, commit=None, note=note)
        landed = [other for other in self._below(branch.worker_id) if self._has_landed(git, other)]
        if parent is not None and parent not in landed:
            head, below = self.head(branch), self.head(parent)
            if parent.worker_id not in chosen and below not in self._remote.heads:
                raise ConfigError(
                    f"worker {branch.worker_id} builds on worker {parent.worker_id}, which has no "
                    "branch on the remote repository",
                    key="stack.parent-unpublished",
                    hint=f"publish both: `orchestrator pr --stack {parent.worker_id} "
                    f"{branch.worker_id}`",
                )
            note = f"Builds on worker {parent.worker_id} (`{below}`): merge `{below}` first."
            commit = self._commit_on_remote(git, head, branch) or self._outgoing(git, branch)
            return Place(branch=branch, head=head, base=below, commit=commit, note=note)
        squashed = [
            other for other in landed if not _contains(git, self._onto, self._outgoing(git, other))
        ]
        # protection: pr-squashed-parents-leave-no-conflict
        if squashed:
            return self._restack(git, branch, squashed[-1], head)
        commit = self._commit_on_remote(git, head, branch) or self._outgoing(git, branch)
        return Place(branch=branch, head=head, base=self._target, commit=commit)

    def _has_landed(self, git: Git, branch: Branch) -> bool:
        """Return whether the target branch has a branch's changes, as the same or other commits."""
        if branch.commit not in self._landed:
            has_commit = self._has[self._onto, branch.commit]
            self._landed[branch.commit] = has_commit or self._has_replayed(git, branch)
        return self._landed[branch.commit]

    def _has_replayed(self, git: Git, branch: Branch) -> bool:
        base = merge_base(git, self._onto, branch.commit)
        if base is None:
            return False
        wanted = ("--first-parent", f"--max-count={_MOST_COMMITS}", f"{base}..{self._onto}")
        rows = git.text("log", "--format=%H %T", *wanted).split("\n")
        commits = (row.split(" ") for row in rows if row)
        return any(self._replay(git, commit, base, branch) == tree for commit, tree in commits)

    def _replay(self, git: Git, onto: str, base: str, branch: Branch) -> str | None:
        """Return the tree of `onto` with a branch's changes since `base`; None on a conflict."""
        signed = signature(self._repository, self._run.began)
        # A commit with the tree of `onto`, whose merge with the branch has `base` as its base.
        stand_in = write_commit(git, _tree(git, onto), [base], b"stand-in", signed=signed)
        merged = merge_commits(git, stand_in, branch.commit, timeout=_TIMEOUT)
        return None if merged.paths else merged.tree

    def _restack(self, git: Git, branch: Branch, parent: Branch, head: str) -> Place:
        """Return the place of a worker that builds on a parent which was merged as other commits.

        Raises:
            ConfigError: The worker's changes conflict with the target.
        """
        own = self._outgoing(git, branch)
        there = self._commit_on_remote(git, head, branch)
        if there not in (None, own):
            # The branch was restacked before, and others may have added commits.
            return self._place_after_merge(branch, parent, head, there)
        tree = self._replay(git, self._onto, parent.commit, branch)
        if tree is None:
            raise ConfigError(
                f"worker {branch.worker_id} conflicts with `{self._target}` since worker "
                f"{parent.worker_id} was merged there",
                key="stack.conflict",
                hint=f"merge `{self._target}` into the branch of worker {branch.worker_id} by hand",
            )
        signed = signature(self._repository, self._run.began)
        said = f"Merge {self._target}, which has worker {parent.worker_id}\n".encode()
        commit = write_commit(git, tree, [own, self._onto], said, signed=signed)
        check_trees(git, base=self._onto, tip=commit, repository=self._repository)
        self._made.add(commit)
        return self._place_after_merge(branch, parent, head, commit)

    def _outgoing(self, git: Git, branch: Branch) -> str:
        """Return the commit that is published for a worker, on top of what its parent publishes."""
        number = branch.worker_id
        # protection: pr-no-commit-of-worker-is-pushed
        if self._keeps_commits:
            return branch.commit
        if number not in self._sealed:
            parent = self._parents.get(number)
            base = merge_base(git, self._onto, branch.commit)
            start = self._outgoing(git, parent) if parent else base
            self._sealed[number] = self._squash(git, branch, [start] if start else [])
        return self._sealed[number]

    def _squash(self, git: Git, branch: Branch, parents: Sequence[str]) -> str:
        """Return a commit of the user with all files of a branch."""
        said = commit_message(branch, self._run.run_id, "Worker")
        signed = signature(self._repository, self._run.began)
        commit = write_commit(git, _tree(git, branch.commit), parents, said, signed=signed)
        self._made.add(commit)
        return commit

    def _commit_on_remote(self, git: Git, head: str, branch: Branch) -> str | None:
        """Return the commit of the remote branch `head` that has the worker's work, or else None.

        If the remote branch has the work as it was at an earlier time, it is a new commit on top.

        Raises:
            ConfigError: The remote branch points at a commit that is not the worker's.
        """
        there, own = self._remote.heads.get(head), self._outgoing(git, branch)
        if there is None or there == own:
            return there
        self._remote.fetch(head)
        # protection: pr-commits-of-others-stay
        if _contains(git, there, own):
            return there
        known = (f"^{branch.base}", f"^{self._onto}")
        is_new = bool(git.text("rev-list", "--max-count=1", there, *known))
        is_own = is_new and _contains(git, branch.commit, there)
        if is_own and self._keeps_commits:
            return None
        wanted = ("log", f"--max-count={_MOST_COMMITS}", "--format=%T", branch.commit)
        tree, trees = _tree(git, there), git.text(*wanted, f"^{self._onto}").split()
        is_earlier = not self._keeps_commits and tree in trees and self._is_sealed(git, there)
        if not is_own and not is_earlier:
            raise ConfigError(
                f"branch `{one_line(head)}` of `{self._remote.name}` is at commit {there[:12]}, "
                f"which was not made by worker {branch.worker_id}",
                key="remote.branch-taken",
                hint="no push is forced; remove or rename the remote branch if it is not needed, "
                "or choose another name: `orchestrator parallel --branch TEMPLATE`",
            )
        return there if tree == trees[0] else self._squash(git, branch, [there])

    def _is_sealed(self, git: Git, commit: str) -> bool:
        """Return whether a commit says that it has all work of a worker of the run."""
        # A worker can make the files of any commit, so equal files alone prove nothing.
        form = "--format=%(trailers:key=Orchestrator-Run,valueonly)"
        return git.text("log", "--max-count=1", form, commit).split() == [self._run.run_id]

    def _place_after_merge(
        self, branch: Branch, parent: Branch, head: str, commit: str | None
    ) -> Place:
        note = (
            f"Built on worker {parent.worker_id}, which has landed: `{self._target}` is merged "
            "into the branch, so that only this worker's changes remain."
        )
        return Place(branch=branch, head=head, base=self._target, commit=commit, note=note)


def containment(git: Git, commits: Sequence[str]) -> dict[tuple[str, str], bool]:
    """Return for each pair of commits whether the first contains the second.

    Two git processes read the history since the commits' common ancestor, however many they are.
    """
    wanted = list(dict.fromkeys(commits))
    try:
        common = git.text("merge-base", "--octopus", *wanted).split()
    except GitCommandError:
        common = []
    asked = [*wanted, *(f"^{commit}" for commit in common)]
    stream = "".join(f"{line}\n" for line in asked).encode()
    listed = git.text("rev-list", "--topo-order", "--parents", "--stdin", stdin=stream).split("\n")
    holders = {commit: 1 << place for place, commit in enumerate(wanted)}
    # Children come before their parents.
    for commit, *parents in (row.split(" ") for row in listed if row):
        for parent in parents:
            holders[parent] = holders.get(parent, 0) | holders.get(commit, 0)
    everywhere = (1 << len(wanted)) - 1
    held = {commit: everywhere if commit in common else holders[commit] for commit in wanted}
    return {
        (holder, commit): bool(held[commit] >> place & 1)
        for place, holder in enumerate(wanted)
        for commit in wanted
    }


def _contains(git: Git, commit: str, other: str) -> bool:
    return git.succeeds("merge-base", "--is-ancestor", other, commit)


def _tree(git: Git, commit: str) -> str:
    return git.text("rev-parse", f"{commit}^{{tree}}")
