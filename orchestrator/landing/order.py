"""Find an order of branches in which as many as possible can be merged."""

import time
from collections.abc import Callable, Sequence

from orchestrator.landing.branches import Branch

SEARCH_TIME = 10.0
"""Seconds for the search of an order."""
MOST_EXACT = 6
"""Maximum number of branches for which all sets are tried."""

Add = Callable[[str, Branch], str | None]
"""Return the commit with a branch on top of a commit, or None if there is a conflict."""
Weight = Callable[[Branch], tuple[int, ...]]
"""Return how many conflicts a branch has with others; lighter branches are added first."""


def best_order(start: str, branches: Sequence[Branch], add: Add, weight: Weight) -> list[Branch]:
    """Return an order in which as many branches as possible can be added.

    The others come last. With up to 6 branches, every set of branches is tried.

    Args:
        start: The commit to which the branches are added.
        branches: The branches in the given order.
        add: Add a branch to a commit.
        weight: Weigh a branch.
    """
    ordered = sorted(branches, key=weight)
    search = _Search(add, time.monotonic() + SEARCH_TIME)
    search.run(start, ordered)
    found = {one.worker_id for one in search.best}
    return [*search.best, *(one for one in branches if one.worker_id not in found)]


class _Search:
    """Search for the largest set of branches that can be merged."""

    def __init__(self, add: Add, deadline: float) -> None:
        self._add = add
        self._deadline = deadline
        self._seen: set[frozenset[int]] = set()
        self.best: list[Branch] = []

    def run(self, commit: str, branches: Sequence[Branch]) -> None:
        """Search, exactly if there are few branches."""
        if len(branches) <= MOST_EXACT:
            self.explore(commit, [], branches)
        else:
            self.explore_greedily(commit, branches)

    def explore(self, commit: str, merged: list[Branch], rest: Sequence[Branch]) -> None:
        """Add each of the remaining branches in turn, and continue with the others."""
        if len(merged) > len(self.best):
            self.best = merged
        for branch in rest:
            if len(merged) + len(rest) <= len(self.best) or time.monotonic() > self._deadline:
                return
            chosen = frozenset(one.worker_id for one in (*merged, branch))
            # Another order of the same branches gives the same result, but in rare cases.
            if chosen in self._seen:
                continue
            self._seen.add(chosen)
            added = self._add(commit, branch)
            if added is not None:
                others = [one for one in rest if one is not branch]
                self.explore(added, [*merged, branch], others)

    def explore_greedily(self, commit: str, rest: Sequence[Branch]) -> None:
        """Add each branch that can be added to those before it."""
        for branch in rest:
            added = self._add(commit, branch)
            if added is not None:
                commit, self.best = added, [*self.best, branch]
