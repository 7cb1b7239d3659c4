"""A conflict of two commits, its description for an agent that resolves it, and stored answers."""

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.base.errors import RepositoryError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.text.quoting import code_block
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.git.command import Git
from orchestrator.review.landing.branches import Branch

Kind = Literal[
    "clean", "text", "mode", "rename", "delete", "submodule", "binary", "semantic", "unknown"
]
"""Whether two commits can be merged: `clean`, the kind of conflict, or `unknown`. `semantic` means
that git can merge the commits, but checks that pass on each commit fail on the merge.
"""
_KINDS: tuple[tuple[str, Kind], ...] = (
    ("submodule", "submodule"),
    ("rename", "rename"),
    ("delete", "delete"),
    ("file/directory", "mode"),
    ("modes", "mode"),
    ("binary", "binary"),
)
"""Pairs of a part of git's name and a kind of conflict, the most serious first."""


def kind_of(names: Iterable[str]) -> Kind:
    """Return the most serious kind of the conflicts that git named, such as `modify/delete`."""
    found = [*names]
    for part, kind in _KINDS:
        if any(part in name for name in found):
            return kind
    return "text"


MOST_PATHS = 200
"""Maximum number of conflicting files that an agent is asked to resolve."""
_MOST_DIFF = 60 * 1024
"""Maximum size in bytes of what one side changed in the conflicting files."""
_MOST_SAID = 8 * 1024
"""Maximum number of characters of a task or a summary."""
_DIFF = (
    "--literal-pathspecs", "diff-tree", "-r", "-p", "--no-color", "--no-renames", "--no-textconv",
    "--no-ext-diff", "--ignore-submodules=none",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Two commits that cannot be merged automatically."""

    commit: str
    """Commit of the automatic merge, with conflict markers in its files. No ref points at it."""
    ours: str
    """The commit to which the branch `theirs` is to be added."""
    theirs: Branch
    """The branch that is to be added to the commit `ours`."""
    others: tuple[Branch, ...]
    """Branches in `ours` that changed the conflicting files."""
    base: str | None
    """Merge base of the two commits; None if they have no commit in common."""
    paths: tuple[str, ...]
    """The conflicting files."""
    kind: Kind
    """The most serious kind of conflict."""


class Proposal(BaseModel):
    """The answer of an agent that was asked to resolve a conflict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    """Id of the agent's run."""
    commit: str | None = None
    """The agent's commit; None if the agent did not succeed, or has not ended."""
    problem: str | None = None
    """Why the agent returned no commit."""
    is_blameless: bool = False
    """Whether the engine or the machine failed, so that asking again at once is useless."""
    findings: str = ""
    """The findings that the agent reported."""

    @property
    def is_answered(self) -> bool:
        """Return whether the agent has ended."""
        return self.commit is not None or self.problem is not None


class ResolvingAgent(Protocol):
    """An agent that resolves conflicts. A question that is asked again gets the stored answer."""

    def ask(self, conflict: Conflict, description: str, attempt: int) -> Proposal:
        """Return the agent's answer.

        Args:
            conflict: The conflict.
            description: The conflict as a text for the agent.
            attempt: Number of the attempt, counted from 1.
        """

    def forget(self, conflict: Conflict) -> None:
        """Forget all answers to a conflict, so that the agent can be asked again."""


def describe(git: Git, conflict: Conflict, refused: str | None) -> str:
    """Return a description of a conflict for the agent that resolves it.

    Args:
        git: Git in a repository with all commits.
        conflict: The conflict.
        refused: Why the previous attempt was not accepted, if there was one.
    """
    paths = "\n".join(f"- {one_line(path, limit=1000)}" for path in conflict.paths)
    parts = [
        "# A merge conflict",
        f"The files of the worktree (commit {conflict.commit}) are the automatic merge of two "
        "commits. The files listed below contain conflict markers, or were changed by one side "
        "and deleted by the other. Both commits are parents of HEAD: `git show HEAD^1:PATH` and "
        "`git show HEAD^2:PATH` print the versions of both sides.",
        f"## Files to resolve\n\n{paths}",
        *([f"## Why the previous attempt was refused\n\n{refused}"] if refused else []),
        f"## First side: {conflict.ours}",
        *(_author(branch) for branch in conflict.others),
        _changes(git, conflict, conflict.ours),
        f"## Second side: {conflict.theirs.commit}",
        _author(conflict.theirs),
        _changes(git, conflict, conflict.theirs.commit),
    ]
    return "\n\n".join(parts) + "\n"


def _author(branch: Branch) -> str:
    said = (
        f"\n\nIts summary:\n\n{code_block(branch.summary, limit=_MOST_SAID)}"
        if branch.summary
        else ""
    )
    task = code_block(branch.task, limit=_MOST_SAID)
    return f"### Task of worker {branch.worker_id}\n\n{task}{said}"


def _changes(git: Git, conflict: Conflict, side: str) -> str:
    """Return what one side changed in the conflicting files."""
    if conflict.base is None:
        return "The two commits have no commit in common."
    try:
        found = git.listing(
            *_DIFF, conflict.base, side, "--", *conflict.paths, limit=_MOST_DIFF, cut=True
        )
    except RepositoryError as error:
        return f"No diff could be created: {one_line(error.message)}"
    cut = "\n(truncated)" if len(found) == _MOST_DIFF else ""
    text = code_block(found.decode("utf-8", "replace"), limit=_MOST_DIFF)
    return f"Its changes in these files:\n\n{text}{cut}"


def names(paths: tuple[bytes, ...]) -> tuple[str, ...]:
    """Return paths, which git prints as bytes, as texts."""
    return tuple(os.fsdecode(path) for path in paths)


_MOST_ANSWERS = 200
"""Maximum number of answers that are stored."""
_ANSWERS = TypeAdapter(dict[str, Proposal])


class StoredAnswers:
    """Answers of an agent with certain settings to conflicts, stored in a file."""

    def __init__(self, path: Path, identity: str) -> None:
        """Read the stored answers.

        Args:
            path: The file.
            identity: The agent's settings that decide its answer.
        """
        self._path = path
        self._identity = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._known: dict[str, Proposal] = {}
        with suppress(OSError, ValidationError):
            self._known = _ANSWERS.validate_json(path.read_bytes())

    def get(self, commit: str, attempt: int) -> Proposal | None:
        """Return the stored answer, which may be unfinished."""
        return self._known.get(self._key(commit, attempt))

    def put(self, commit: str, attempt: int, proposal: Proposal | None) -> None:
        """Store an answer; None removes the stored answer."""
        key = self._key(commit, attempt)
        self._known.pop(key, None)
        if proposal is not None:
            self._known[key] = proposal
        self._write()

    def forget(self, commit: str) -> None:
        """Remove all answers for a commit."""
        first = self._key(commit, 0).removesuffix("0")
        self._known = {
            key: proposal for key, proposal in self._known.items() if not key.startswith(first)
        }
        self._write()

    def _key(self, commit: str, attempt: int) -> str:
        return f"{commit}-{self._identity}-{attempt}"

    def _write(self) -> None:
        kept = dict([*self._known.items()][-_MOST_ANSWERS:])
        write_atomically(self._path, json.dumps(_ANSWERS.dump_python(kept)))
