"""Find an order in which as many branches as possible can be merged."""

import time
from collections.abc import Callable, Sequence
from itertools import combinations

from orchestrator.repository.commits.merge_tree import merge_pairs
from orchestrator.repository.git.command import Git
from orchestrator.review.landing.branches import Branch

SEARCH_TIME = 10.0
"""Maximum number of seconds for the search of an order."""
_PAIRS_TIMEOUT = 60.0
MOST_EXACT = 6
"""Maximum number of branches for which all orders are tried."""

Add = Callable[[str, Branch], str | None]
"""Function that adds a branch to a commit, and returns the new commit; None if they conflict."""
Weight = Callable[[Branch], tuple[int, ...]]
"""Function that returns a branch's sort key, such as its number of conflicts; branches with smaller
keys are added first.
"""


def order_branches(
    git: Git,
    start: str,
    branches: Sequence[Branch],
    add: Add,
    size: Callable[[Branch], int],
) -> tuple[Sequence[Branch], int]:
    """Return an order with few conflicts, and the number of conflicts in the given order.

    Args:
        git: Git in a repository with all commits.
        start: The commit to which the branches are added.
        branches: The branches in the given order.
        add: Function that adds a branch to a commit.
        size: Function that returns the number of files that a branch changes.
    """
    onto, conflicts = start, 0
    for branch in branches:
        added = add(onto, branch)
        onto, conflicts = added or onto, conflicts + (added is None)
    if not conflicts:
        return branches, 0
    pairs = [*combinations(branches, 2)]
    commits = [(branch.commit, other.commit) for branch, other in pairs]
    merges = zip(pairs, merge_pairs(git, commits, timeout=_PAIRS_TIMEOUT), strict=True)
    bad = [pair for pair, merged in merges if merged is None or merged.paths]
    weights = {
        branch: (sum(branch in pair for pair in bad), size(branch), place)
        for place, branch in enumerate(branches)
    }
    return best_order(start, branches, add, weights.__getitem__), conflicts


def best_order(start: str, branches: Sequence[Branch], add: Add, weight: Weight) -> list[Branch]:
    """Return an order in which as many branches as possible can be added.

    Branches that cannot be added come last. With up to 6 branches, every set of them is tried.

    Args:
        start: The commit to which the branches are added.
        branches: The branches in the given order.
        add: Function that adds a branch to a commit.
        weight: Function that returns a branch's sort key; smaller keys are added first.
    """
    ordered = sorted(branches, key=weight)
    search = _Search(add, time.monotonic() + SEARCH_TIME)
    search.run(start, ordered)
    found = {branch.worker_id for branch in search.best}
    return [*search.best, *(branch for branch in branches if branch.worker_id not in found)]


class _Search:
    """Searches for the largest set of branches that can be merged together."""

    def __init__(self, add: Add, deadline: float) -> None:
        self._add = add
        self._deadline = deadline
        self._seen: set[frozenset[int]] = set()
        self.best: list[Branch] = []

    def run(self, commit: str, branches: Sequence[Branch]) -> None:
        """Find the largest set, and store it in `best`; many branches are only tried greedily."""
        if len(branches) <= MOST_EXACT:
            self.explore(commit, [], branches)
        else:
            self.explore_greedily(commit, branches)

    def explore(self, commit: str, merged: list[Branch], rest: Sequence[Branch]) -> None:
        """Add each remaining branch in turn, and continue from the new commit with the others."""
        if len(merged) > len(self.best):
            self.best = merged
        for branch in rest:
            if len(merged) + len(rest) <= len(self.best) or time.monotonic() > self._deadline:
                return
            chosen = frozenset(added.worker_id for added in (*merged, branch))
            # Except in rare cases, another order of the same branches gives the same result.
            if chosen in self._seen:
                continue
            self._seen.add(chosen)
            added = self._add(commit, branch)
            if added is not None:
                others = [left for left in rest if left is not branch]
                self.explore(added, [*merged, branch], others)

    def explore_greedily(self, commit: str, rest: Sequence[Branch]) -> None:
        """Merge each branch of `rest` that does not conflict with the branches merged before it."""
        for branch in rest:
            added = self._add(commit, branch)
            if added is not None:
                commit, self.best = added, [*self.best, branch]
