"""Add branches to a commit one after the other, without changing any ref or file.

Equal arguments give equal commits: a new commit has the date of its first parent, or of the run's
start if that is later. So an interrupted merge that is repeated creates the same commits.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from orchestrator.base.errors import GitCommandError, OrchestratorError, RepositoryError
from orchestrator.base.results import Form
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.commits.merge_tree import Merged, merge_commits
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.failures import disk_full
from orchestrator.repository.incoming.packed_work import HarvestRefusedError
from orchestrator.repository.incoming.quarantine import check_trees
from orchestrator.repository.incoming.sealed_commits import check_names, signature, write_commit
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch
from orchestrator.review.landing.merged import Problem
from orchestrator.review.landing.request_text import commit_message

MERGE_TIMEOUT = 120.0
"""Maximum number of seconds for all merges of one branch."""
MOST_COMMITS = 1000
"""Maximum number of commits of a branch that a rebase repeats."""
_LONGEST_COMMIT = 2 * 1024**2
_HEADER = re.compile(rb"(?m)^(author|encoding) [^\n]*$")


class CannotAddError(OrchestratorError):
    """A branch cannot be added to the commits that were merged before it."""

    exit_code = 1

    def __init__(
        self, message: str, problem: Problem, files: Sequence[bytes] = (), *, key: str
    ) -> None:
        super().__init__(message, key=key)
        self.problem = problem
        self.files = tuple(files)


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise `CannotAddError` for git's errors in a `with` block; hostile objects may cause them."""
    try:
        yield
    except HarvestRefusedError as error:
        raise CannotAddError(error.message, "refused", key="branch.refused") from error
    except RepositoryError as error:
        full = disk_full(error.stderr) if isinstance(error, GitCommandError) else None
        raise full or CannotAddError(
            one_line(error.message), "refused", key="branch.refused"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Adds branches to commits in the form that the user chose, such as merge commits."""

    repository: Repository
    git: Git
    """Git in a quarantine, a separate repository."""
    run_id: str
    form: Form
    began: datetime
    """Start of the run; no new commit has an earlier date."""

    def add(self, onto: str, branch: Branch) -> str:
        """Add a branch's work to the commit `onto`, and return the new commit.

        Raises:
            CannotAddError: The branch cannot be added, for example because of a conflict.
            OSError: The disk is full.
        """
        with _refusals():
            commit = self._add(onto, branch)
            self._check(commit, onto, branch)
        return commit

    def add_marked(self, onto: str, branch: Branch) -> tuple[str, Merged]:
        """Commit a merge with conflict markers; return the commit, and git's result of the merge.

        Raises:
            CannotAddError: The merge breaks a rule for commits.
            OSError: The disk is full.
        """
        with _refusals():
            merged = merge_commits(self.git, onto, branch.commit, timeout=MERGE_TIMEOUT)
            message = b"Automatic merge with conflict markers\n"
            commit = self._write(merged.tree, [onto, branch.commit], message, onto)
            self._check(commit, onto, branch)
        return commit, merged

    def add_tree(self, onto: str, branch: Branch, tree: str, note: str) -> str:
        """Add a branch's work to the commit `onto` as a given tree, and return the new commit.

        Args:
            onto: The commit.
            branch: The branch.
            tree: The commit whose files are the result of the merge.
            note: Last line of the message.

        Raises:
            CannotAddError: The tree breaks a rule for commits.
            OSError: The disk is full.
        """
        with _refusals():
            if self._tree(tree) == self._tree(onto) and self.form != "merge":
                return onto
            commit = self._commit(self._tree(tree), onto, branch, note)
            # protection: agent-resolutions-are-checked-like-harvested-trees
            self._check(commit, onto, branch)
        return commit

    def _check(self, commit: str, onto: str, branch: Branch) -> None:
        if commit != onto:
            # protection: merged-trees-are-checked-like-harvested-trees
            check_trees(self.git, base=onto, tip=commit, repository=self.repository)
            check_names(self.git, commit, [onto, branch.commit])

    def with_form(self, form: Form) -> "Chain":
        """Return a copy that adds branches in another form."""
        return replace(self, form=form)

    def _add(self, onto: str, branch: Branch) -> str:
        if self.git.succeeds("merge-base", "--is-ancestor", branch.commit, onto):
            return onto
        deadline = time.monotonic() + MERGE_TIMEOUT
        if self.form == "rebase":
            wanted = ("--reverse", "--topo-order", "--parents", f"--max-count={1 + MOST_COMMITS}")
            listed = self.git.text("rev-list", *wanted, f"{onto}..{branch.commit}")
            rows = [row.split() for row in split_lines(listed)]
            if len(rows) > MOST_COMMITS:
                raise CannotAddError(
                    f"the branch has more than {MOST_COMMITS} commits",
                    "refused",
                    key="branch.too-many-commits",
                )
            # protection: rebase-of-merge-commits-is-refused
            if any(len(row) != 2 for row in rows):
                raise CannotAddError(
                    "the branch has merge commits, which a rebase would drop",
                    "merges",
                    key="branch.merge-commits",
                )
            for commit, parent in rows:
                onto = self._replay_commit(onto, commit, parent, deadline)
            return onto
        merged = self._merge(onto, branch.commit, deadline)
        if merged.tree == self._tree(onto):
            return onto
        return self._commit(merged.tree, onto, branch)

    def _commit(self, tree: str, onto: str, branch: Branch, *notes: str) -> str:
        parents = [onto, branch.commit] if self.form == "merge" else [onto]
        verb = "Merge worker" if self.form == "merge" else "Worker"
        message = commit_message(branch, self.run_id, verb, *notes)
        return self._write(tree, parents, message, onto)

    def _write(self, tree: str, parents: Sequence[str], message: bytes, onto: str) -> str:
        return write_commit(self.git, tree, parents, message, signed=self._signature(onto))

    def _merge(self, ours: str, theirs: str, deadline: float) -> Merged:
        timeout = max(0.1, deadline - time.monotonic())
        merged = merge_commits(self.git, ours, theirs, timeout=timeout)
        if merged.paths:
            raise CannotAddError("conflict", "conflict", merged.paths, key="branch.conflict")
        return merged

    def _tree(self, commit: str) -> str:
        return self.git.text("rev-parse", f"{commit}^{{tree}}")

    def _signature(self, onto: str) -> Mapping[str, str]:
        date = int(self.git.text("log", "-1", "--format=%ct", onto))
        when = max(self.began, datetime.fromtimestamp(date, UTC))
        return signature(self.repository, when)

    def _replay_commit(self, onto: str, commit: str, parent: str, deadline: float) -> str:
        # A commit with the tree of `onto` and the parent of `commit`: its merge with `commit` has
        # that parent as its base.
        tree, signed = self._tree(onto), self._signature(onto)
        stand_in = write_commit(self.git, tree, [parent], b"stand-in", signed=signed)
        merged = self._merge(stand_in, commit, deadline)
        if merged.tree == tree:
            return onto
        raw = self.git.listing("cat-file", "commit", commit, limit=_LONGEST_COMMIT)
        header, _, message = raw.partition(b"\n\n")
        kept = {match[1]: match[0] for match in _HEADER.finditer(header)}
        committer = b"committer " + self.git.run("var", "GIT_COMMITTER_IDENT", env=signed).strip()
        rows = [b"tree " + merged.tree.encode(), b"parent " + onto.encode(), kept[b"author"]]
        rows += [committer, *([kept[b"encoding"]] if b"encoding" in kept else [])]
        data = b"\n".join(rows) + b"\n\n" + message
        # Git checks the form of the commit: a worker wrote its author and its message.
        return self.git.text("hash-object", "-t", "commit", "-w", "--stdin", stdin=data)
