"""Ask an agent to resolve a conflict, and accept the agent's work only if it follows the rules.

The agent may change the conflicting files and those of `Resolver.allowed`. No conflict marker may
be left, and the additions of neither side may vanish entirely without a reason in the agent's
findings.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.base.errors import GitCommandError, OutputTooLongError
from orchestrator.base.text.path_patterns import outside
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.git.command import Git
from orchestrator.review.landing.chain import CannotAddError
from orchestrator.review.landing.conflict import (
    MOST_PATHS,
    Conflict,
    Proposal,
    ResolvingAgent,
    describe,
)

ATTEMPTS = 2
"""Number of times that an agent is asked to resolve the same conflict."""
_SHOWN = 5
_MOST_READ = 32 * 1024**2
"""Maximum size in bytes of a file that is searched for conflict markers."""
_MARKER = re.compile(rb"(?:<{7,}|>{7,}|\|{7,}) .*|={7}")
_RESOLVABLE = frozenset({"text", "binary", "delete", "rename"})
"""Kinds of conflicts that can be resolved by writing files."""


@dataclass(frozen=True, kw_only=True)
class Resolver:
    """Resolves conflicts with the help of an agent."""

    agent: ResolvingAgent
    allowed: tuple[str, ...] = ()
    """Patterns, as in `.gitignore`, of files that the agent may change besides the conflicting
    files."""

    def resolve(self, git: Git, conflict: Conflict) -> Proposal:
        """Return the accepted work of an agent.

        Args:
            git: Git in a quarantine that can read the user's objects.
            conflict: The conflict.

        Raises:
            UnresolvedError: No work of the agent was accepted.
        """
        if conflict.kind not in _RESOLVABLE or len(conflict.paths) > MOST_PATHS:
            facts = f"{conflict.kind}, files: {len(conflict.paths)}"
            why = f"no agent is asked to resolve a conflict of this kind or size ({facts})"
            raise UnresolvedError(conflict, [why])
        refused: list[str] = []
        for attempt in range(1, ATTEMPTS + 1):
            text = describe(git, conflict, refused[-1] if refused else None)
            proposal = self.agent.ask(conflict, text, attempt)
            problem = proposal.problem or self.refusal(git, conflict, proposal)
            if problem is None:
                return proposal
            refused.append(f"{problem} (run {proposal.run_id})")
            if proposal.is_blameless:
                break
        self.agent.forget(conflict)
        raise UnresolvedError(conflict, refused)

    def refusal(self, git: Git, conflict: Conflict, proposal: Proposal) -> str | None:
        """Return why the work of an agent is not accepted; None if it is accepted."""
        if proposal.commit is None or proposal.commit == conflict.commit:
            return "the agent committed nothing"
        try:
            return next(self._problems(git, conflict, proposal.commit, proposal.findings), None)
        except OutputTooLongError as error:
            return f"the resolution cannot be checked: {one_line(error.message)}"

    def _problems(self, git: Git, conflict: Conflict, commit: str, findings: str) -> Iterator[str]:
        raw = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames")
        fields = git.run(*raw, "--ignore-submodules=none", conflict.commit, commit).split(b"\0")
        changed = {
            os.fsdecode(path): row.decode("ascii").removeprefix(":").split(" ")[:2]
            for row, path in zip(fields[::2], fields[1::2], strict=False)
        }
        foreign = [path for path in changed if path not in conflict.paths]
        # protection: agent-only-conflicting-files-are-changed
        if foreign := outside(self.allowed, foreign) if self.allowed else foreign:
            yield f"files without a conflict were changed: {_join_paths(foreign)}"
        links = [
            path
            for path, (old, new) in changed.items()
            if new not in ("000000", old) and not new.startswith("100")
        ]
        # protection: agent-files-are-not-replaced-by-links
        if links := [path for path in links if not _is_of_a_side(git, conflict, commit, path)]:
            yield f"files were replaced by links or directories: {_join_paths(links)}"
        marked = [
            path for path in dict.fromkeys((*conflict.paths, *changed))
            if _has_markers(git, conflict, commit, path)
        ]  # fmt: skip
        # protection: agent-no-conflict-marker-is-left
        if marked:
            yield f"conflict markers are left in {_join_paths(marked)}"
        # protection: agent-no-side-vanishes-without-reason
        lost = [path for path in conflict.paths if _one_side_is_gone(git, conflict, commit, path)]
        # A line of the findings explains a file if it names the file and says more than its name.
        # protection: agent-reason-says-more-than-name-of-file
        if unexplained := [
            path
            for path in lost
            if not any(
                path in line and len(line.replace(path, "").split()) > 1
                for line in split_lines(findings)
            )
        ]:
            yield (
                f"all additions of one side are gone, without a reason in the findings: "
                f"{_join_paths(unexplained)}"
            )


class UnresolvedError(CannotAddError):
    """No agent resolved the conflict, so the branch cannot be added."""

    def __init__(self, conflict: Conflict, refused: Sequence[str]) -> None:
        paths = [os.fsencode(path) for path in conflict.paths]
        super().__init__("conflict", "conflict", paths, key="conflict.unresolved")
        self.refused = tuple(one_line(text, limit=500) for text in refused)


def _join_paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(one_line(path) for path in paths[:_SHOWN]) + more


def _is_of_a_side(git: Git, conflict: Conflict, commit: str, path: str) -> bool:
    """Return whether a path has the same content and type as on one of the two sides."""
    found = _entry(git, commit, path)
    return found in (_entry(git, conflict.ours, path), _entry(git, conflict.theirs.commit, path))


def _entry(git: Git, commit: str, path: str) -> bytes:
    return git.run("--literal-pathspecs", "ls-tree", "-z", commit, "--", path)


def _content(git: Git, commit: str | None, path: str) -> bytes:
    """Return the content of a file in a commit; empty if there is no such file."""
    if commit is None:
        return b""
    try:
        return git.listing("cat-file", "blob", f"{commit}:{path}", limit=_MOST_READ)
    except GitCommandError:
        return b""


def _lines(data: bytes) -> list[bytes]:
    return [line.removesuffix(b"\r") for line in data.split(b"\n")]


def _has_markers(git: Git, conflict: Conflict, commit: str, path: str) -> bool:
    """Return whether a file has lines like conflict markers that neither side has."""
    found = _markers(_content(git, commit, path))
    if not found:
        return False
    ours = _markers(_content(git, conflict.ours, path))
    theirs = _markers(_content(git, conflict.theirs.commit, path))
    return any(number > max(ours[line], theirs[line]) for line, number in found.items())


def _markers(data: bytes) -> Counter[bytes]:
    return Counter(line for line in _lines(data) if _MARKER.fullmatch(line))


def _one_side_is_gone(git: Git, conflict: Conflict, commit: str, path: str) -> bool:
    sides = [_content(git, side, path) for side in (conflict.ours, conflict.theirs.commit)]
    if not all(sides) or any(b"\0" in data for data in sides):
        # One side deleted the file, or it is binary: only one side can be kept.
        return False
    base, left = (Counter(_lines(_content(git, side, path))) for side in (conflict.base, commit))
    ours, theirs = (Counter(_lines(data)) - base for data in sides)
    return any(
        bool(told) and not any(left[line] > base[line] for line in told)
        for added in (ours - theirs, theirs - ours)
        for told in [[line for line in added if line.strip()]]
    )
