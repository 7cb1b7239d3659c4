"""Find branches that git can merge, but that break the checks together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.repository.commits.merge_tree import quarantine
from orchestrator.repository.incoming.sealed_commits import import_commits
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.review.landing.chain import CannotAddError, Chain
from orchestrator.review.landing.checkout import scratch
from orchestrator.review.landing.conflict_matrix import Conflicts, Pair, find_conflicts
from orchestrator.review.landing.land import only_one
from orchestrator.review.landing.queue import Answer, BaseFailsError, CommitTest, repeat_test
from orchestrator.review.landing.verdicts import StoredVerdicts

_BASE = 0


@dataclass(frozen=True, kw_only=True)
class PairTest:
    """The checks that merged branches must pass."""

    test: CommitTest
    identity: str
    """Text that identifies the checks, so that stored results of other checks are not used."""


def find_all_conflicts(
    repository: Repository, run: RunBranches, branches: Sequence[Branch], base: str, test: PairTest
) -> Conflicts:
    """Return the conflicts of branches: those that git finds, and those that only checks find.

    Args:
        repository: The user's repository.
        run: The run of the branches.
        branches: The branches.
        base: The commit that the branches would be merged into.
        test: The checks.

    Raises:
        BaseFailsError: The checks fail on `base` itself.
        ConfigError: Another process merges branches.
        RepositoryError: Git failed.
    """
    found = find_conflicts(repository, branches, run_id=run.run_id, base=base)
    with only_one(repository):
        place = scratch(repository)
        with quarantine(repository, place) as git:
            chain = Chain(
                repository=repository, git=git, run_id=run.run_id, form="merge", began=run.began
            )
            verdicts = StoredVerdicts(repository.state_dir / "verdicts.json", git, test.identity)
            known = [base, *(branch.commit for branch in branches)]

            def run_test(commit: str) -> Answer:
                if commit not in known:
                    import_commits(repository, git, place / "git", commit, known)
                return test.test(commit)

            return _Matrix(base, branches, chain, run_test, verdicts).of(found)


class _Matrix:
    """Runs the checks on the merge of each pair of branches, and on each branch alone."""

    def __init__(
        self,
        base: str,
        branches: Iterable[Branch],
        chain: Chain,
        test: CommitTest,
        verdicts: StoredVerdicts,
    ) -> None:
        self._base = base
        self._branches = {branch.worker_id: branch for branch in branches}
        self._chain = chain
        self._test = test
        self._verdicts = verdicts

    def _answer(self, commit: str) -> Answer:
        return repeat_test(commit, self._test, self._verdicts)

    def of(self, found: Conflicts) -> Conflicts:
        """Return the conflicts, with those that the checks find."""
        if self._answer(self._base) == "fail":
            raise BaseFailsError(
                f"the checks fail on HEAD itself ({self._base[:12]}), without any worker's changes",
                key="base.checks-failed",
                hint="`orchestrator ls --all` lists the runs of the checks; see their logs",
            )
        alone = {pair.b: self._alone(pair) for pair in found.pairs if pair.a == _BASE}
        failing = tuple(number for number, (_, fails) in alone.items() if fails)
        pairs = []
        for pair in found.pairs:
            if pair.a == _BASE:
                pairs.append(alone[pair.b][0])
                continue
            # Both branches pass the checks: does their merge?
            both_pass = all(alone[n][0].is_clean and n not in failing for n in (pair.a, pair.b))
            commit = self._merge(pair.a, pair.b) if pair.is_clean and both_pass else None
            is_broken = commit is not None and self._answer(commit) == "fail"
            pairs.append(_as_semantic(pair) if is_broken else pair)
        return found.model_copy(update={"pairs": tuple(pairs), "failing": failing})

    def _alone(self, pair: Pair) -> tuple[Pair, bool]:
        """Test a worker's merge with the base; return the pair, and whether it fails alone."""
        commit = self._merge(pair.b) if pair.is_clean else None
        if commit is None or self._answer(commit) != "fail":
            return pair, False
        own = self._branches[pair.b].commit
        if own != commit and self._answer(own) == "pass":
            return _as_semantic(pair), False
        return pair, True

    def _merge(self, *numbers: int) -> str | None:
        commit = self._base
        try:
            for number in numbers:
                commit = self._chain.add(commit, self._branches[number])
        except CannotAddError:
            return None
        return commit


def _as_semantic(pair: Pair) -> Pair:
    return pair.model_copy(update={"kind": "semantic"})
