"""Test several branches together, and find the branches that make the checks fail.

All branches are merged one after the other, and the last commit is tested. If it fails, bisection
finds the first commit that fails: the branch that was added there is left out, with both commits as
proof, and the rest is tested without it. A failing test is repeated. A test without an answer, as
when the engine fails, blames no branch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from orchestrator.errors import OrchestratorError
from orchestrator.landing.branches import Branch
from orchestrator.landing.chain import CannotAddError

Answer = Literal["pass", "fail", "none"]
"""Result of a test: `pass`, `fail`, or `none` if the engine failed or the test was cancelled."""
_TWICE = 2
_ATTEMPTS = 3
"""Maximum number of searches that are begun again, because a repeated test gave another result."""


class BaseFailsError(OrchestratorError):
    """The checks fail on the target branch itself, so no other branch is to blame."""

    exit_code = 2


CommitTest = Callable[[str], Answer]
"""Function that runs the checks on a commit."""


class Verdicts(Protocol):
    """Results of earlier tests, by the content (tree) of the tested commits."""

    def get(self, *commits: str) -> Answer | None:
        """Return the stored result for a commit, or for the pair of commits of a proof."""

    def put(self, answer: Answer | None, *commits: str) -> None:
        """Store a result; None removes the stored result."""


@dataclass(frozen=True)
class Proof:
    """Two commits that show that a branch makes the checks fail."""

    passes: str
    """The commit without the branch, on which the checks pass."""
    fails: str
    """The commit with the branch, on which the checks fail."""


@dataclass
class Outcome:
    """The result of testing the branches of one merge."""

    commit: str
    """The last commit that passed the checks."""
    landed: list[Branch] = field(default_factory=list)
    contained: list[Branch] = field(default_factory=list)
    conflicts: list[tuple[Branch, CannotAddError]] = field(default_factory=list)
    culprits: list[tuple[Branch, Proof]] = field(default_factory=list)
    undecided: list[Branch] = field(default_factory=list)
    """Branches for which the checks gave no answer."""


class Queue:
    """Tests the branches of one merge together, and decides which of them are merged."""

    def __init__(
        self, add: Callable[[str, Branch], str], test: CommitTest, verdicts: Verdicts
    ) -> None:
        """Store how a branch is added to a commit, and how a commit is tested."""
        self._add = add
        self._test = test
        self._verdicts = verdicts

    def run(self, start: str, branches: Sequence[Branch]) -> Outcome:
        """Merge and test the branches on top of a commit.

        Raises:
            BaseFailsError: The checks fail on the commit itself.
        """
        outcome, rest, attempts = Outcome(start), list(branches), 0
        first = self._answer(start)
        if first == "fail":
            raise BaseFailsError(
                f"the checks fail on {start[:12]}, before anything is merged",
                hint="`orchestrator ls --all` lists the runs of the checks; see their logs",
            )
        while rest and first != "none":
            prefixes = self._prefixes(outcome, rest)
            found = self._first_failing(prefixes)
            if found is None:
                break
            if found < len(prefixes) and not self._is_proved(outcome.commit, prefixes, found):
                attempts += 1
                if attempts == _ATTEMPTS:
                    break
                continue
            self._note(outcome, prefixes, found, rest)
        known = [*outcome.contained, *(branch for branch, _ in outcome.conflicts)]
        outcome.undecided += [branch for branch in rest if branch not in known]
        return outcome

    def _answer(self, commit: str) -> Answer:
        """Test a commit until it passed once, failed twice, or gave no answer twice."""
        known = self._verdicts.get(commit)
        answers: list[Answer] = []
        while known is None:
            answers.append(self._test(commit))
            if answers[-1] == "pass" or answers.count(answers[-1]) == _TWICE:
                known = answers[-1]
        if known != "none":
            self._verdicts.put(known, commit)
        return known

    def _prefixes(self, outcome: Outcome, rest: Sequence[Branch]) -> list[tuple[Branch, str]]:
        """Add branches to the last good commit; record those that conflict or add nothing."""
        commit, found = outcome.commit, []
        outcome.conflicts, outcome.contained = [], []
        for branch in rest:
            try:
                added = self._add(commit, branch)
            except CannotAddError as error:
                outcome.conflicts.append((branch, error))
                continue
            if added == commit:
                outcome.contained.append(branch)
            else:
                found.append((branch, added))
            commit = added
        return found

    def _first_failing(self, prefixes: Sequence[tuple[Branch, str]]) -> int | None:
        """Return the index of the first failing commit; the number of all if none fails.

        None means that a test gave no answer.
        """
        low, high = -1, len(prefixes)
        probe = high - 1
        while high - low > 1:
            answer = self._answer(prefixes[probe][1])
            if answer == "none":
                return None
            low, high = (probe, high) if answer == "pass" else (low, probe)
            probe = (low + high) // 2
        return high

    def _is_proved(self, good: str, prefixes: Sequence[tuple[Branch, str]], place: int) -> bool:
        """Repeat both tests of a proof, and return whether they give the same results."""
        commits = (prefixes[place - 1][1] if place else good, prefixes[place][1])
        if self._verdicts.get(*commits) is None:
            if (self._test(commits[0]), self._test(commits[1])) != ("pass", "fail"):
                for commit in commits:
                    self._verdicts.put(None, commit)
                return False
            self._verdicts.put("pass", *commits)
        return True

    def _note(
        self, outcome: Outcome, prefixes: list[tuple[Branch, str]], found: int, rest: list[Branch]
    ) -> None:
        """Record the branches before a failing commit as merged, and its branch as the cause."""
        passed = prefixes[:found]
        outcome.landed += [branch for branch, _ in passed]
        outcome.commit = passed[-1][1] if passed else outcome.commit
        decided = [branch for branch, _ in passed]
        if found < len(prefixes):
            culprit, fails = prefixes[found]
            outcome.culprits.append((culprit, Proof(outcome.commit, fails)))
            decided.append(culprit)
        else:
            decided += [*outcome.contained, *(branch for branch, _ in outcome.conflicts)]
        rest[:] = [branch for branch in rest if branch not in decided]
