"""Test several branches together, and find the branches that make the checks fail.

All branches are merged one after the other, and the last commit is tested. If it fails, bisection
finds the first commit that fails. The branch that was added there is left out, with this commit and
the commit before it as proof, and the other branches are tested without it. A failing test is
repeated. A test without an answer, as when the engine fails, blames no branch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from orchestrator.base.errors import OrchestratorError
from orchestrator.review.landing.branches import Branch
from orchestrator.review.landing.chain import CannotAddError

Answer = Literal["pass", "fail", "none"]
"""Result of a test: `pass`, `fail`, or `none` if the engine failed or the test was cancelled."""
# protection: queue-failed-checks-are-repeated
_TWICE = 2
_OFTEN = 5
"""Number of failed tests after which a commit counts as failing, if the checks are known to be
unstable."""
_ATTEMPTS = 3
"""Number of bisections contradicted by repeated tests, after which no more are tried."""


class BaseFailsError(OrchestratorError):
    """The checks fail on the target branch itself, so no other branch is to blame."""

    exit_code = 2


CommitTest = Callable[[str], Answer]
"""Function that runs the checks on a commit."""
Add = Callable[[str, Branch], str]
"""Function that adds a branch to a commit, and returns the new commit."""


class Verdicts(Protocol):
    """Results of earlier tests, by the content (tree) of the tested commits."""

    def get(self, *commits: str) -> Answer | None:
        """Return the stored result of a commit or of a proof (two commits); None if not stored."""

    def put(self, answer: Answer | None, *commits: str) -> None:
        """Store a result; None removes the stored result."""

    @property
    def is_unstable(self) -> bool:
        """Return whether the checks gave different results for the same commit."""

    def note_unstable(self) -> None:
        """Record that the checks gave different results for the same commit."""


def repeat_test(commit: str, test: CommitTest, verdicts: Verdicts) -> Answer:
    """Test a commit until it passed once, failed twice, or gave no answer twice.

    If the checks are known to be unstable, the commit must fail five times.
    """
    known = verdicts.get(commit)
    answers: list[Answer] = []
    while known is None:
        answers.append(test(commit))
        limit = _OFTEN if answers[-1] == "fail" and verdicts.is_unstable else _TWICE
        if answers[-1] == "pass" or answers.count(answers[-1]) >= limit:
            known = answers[-1]
    if known == "pass" and "fail" in answers:
        verdicts.note_unstable()
    if known != "none":
        verdicts.put(known, commit)
    return known


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

    def extend(self, part: "Outcome") -> None:
        """Add the results of branches that were merged on top of this outcome's commit."""
        self.commit = part.commit
        self.landed += part.landed
        self.contained += part.contained
        self.conflicts += part.conflicts
        self.culprits += part.culprits
        self.undecided += part.undecided


class Queue:
    """Tests the branches of one merge together, and decides which of them are merged."""

    def __init__(
        self, add: Add, test: CommitTest, verdicts: Verdicts, resolve: Add | None = None
    ) -> None:
        """Store how the branches of the merge are added to commits and tested.

        Args:
            add: Add a branch to a commit.
            test: Run the checks on a commit.
            verdicts: Results of earlier tests.
            resolve: Add a branch that conflicts, by resolving the conflict. Default: such branches
                are left out.
        """
        self._add = add
        self._test = test
        self._verdicts = verdicts
        self._resolve = resolve

    def run(self, start: str, branches: Sequence[Branch]) -> Outcome:
        """Merge and test the branches on top of a commit.

        Conflicting branches are resolved last, on top of all other merged branches.

        Raises:
            BaseFailsError: The checks fail on the commit itself.
        """
        outcome = Outcome(start)
        first = self._answer(start)
        # protection: queue-no-branch-is-blamed-if-target-fails
        if first == "fail":
            raise BaseFailsError(
                f"the checks fail on the target branch itself ({start[:12]}): nothing was merged",
                key="base.checks-failed",
                hint="`orchestrator ls --all` lists the runs of the checks; see their logs",
            )
        if first == "none":
            outcome.undecided = [*branches]
            return outcome
        self._decide(outcome, branches, self._add)
        if self._resolve is None or outcome.undecided:
            return outcome
        conflicts, outcome.conflicts = outcome.conflicts, []
        for branch, _ in conflicts:
            part = Outcome(outcome.commit)
            self._decide(part, [branch], self._resolve)
            outcome.extend(part)
        return outcome

    def _decide(self, outcome: Outcome, branches: Sequence[Branch], add: Add) -> None:
        """Merge and test branches on top of the last good commit, and record the results."""
        rest, attempts = list(branches), 0
        while rest:
            prefixes = self._prefixes(outcome, rest, add)
            found = self._first_failing(prefixes)
            if found is None:
                break
            if found < len(prefixes) and not self._is_proved(outcome.commit, prefixes, found):
                attempts += 1
                if attempts == _ATTEMPTS:
                    break
                continue
            passed = prefixes[:found]
            decided = [branch for branch, _ in passed]
            outcome.landed += decided
            outcome.commit = passed[-1][1] if passed else outcome.commit
            if found < len(prefixes):
                culprit, fails = prefixes[found]
                outcome.culprits.append((culprit, Proof(outcome.commit, fails)))
                decided.append(culprit)
            else:
                decided += [*outcome.contained, *(branch for branch, _ in outcome.conflicts)]
            rest = [branch for branch in rest if branch not in decided]
        known = [*outcome.contained, *(branch for branch, _ in outcome.conflicts)]
        outcome.undecided += [branch for branch in rest if branch not in known]

    def _answer(self, commit: str) -> Answer:
        return repeat_test(commit, self._test, self._verdicts)

    def _prefixes(
        self, outcome: Outcome, rest: Sequence[Branch], add: Add
    ) -> list[tuple[Branch, str]]:
        """Add branches in turn, return them with new commits; record conflicts and empty ones."""
        commit, found = outcome.commit, []
        outcome.conflicts, outcome.contained = [], []
        for branch in rest:
            try:
                added = add(commit, branch)
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
        """Return the index of the first failing commit; the number of commits if none fails.

        Returns None if a test gave no answer.
        """
        low, high = -1, len(prefixes)
        probe = high - 1
        while high - low > 1:
            answer = self._answer(prefixes[probe][1])
            # protection: queue-no-branch-is-blamed-without-answer
            if answer == "none":
                return None
            low, high = (probe, high) if answer == "pass" else (low, probe)
            probe = (low + high) // 2
        return high

    def _is_proved(self, good: str, prefixes: Sequence[tuple[Branch, str]], place: int) -> bool:
        """Return whether commit `place` fails and the one before passes, in two tests of each."""
        commits = (prefixes[place - 1][1] if place else good, prefixes[place][1])
        if self._verdicts.get(*commits) is None:
            for _ in range(_TWICE):
                answers = (self._test(commits[0]), self._test(commits[1]))
                if answers != ("pass", "fail"):
                    if "none" not in answers:
                        self._verdicts.note_unstable()
                    for commit in commits:
                        self._verdicts.put(None, commit)
                    return False
            self._verdicts.put("pass", *commits)
        return True
