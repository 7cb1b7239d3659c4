"""Tests of conflicts that only the checks find."""

import pytest

from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.review.landing.conflict_matrix import Conflicts
from orchestrator.review.landing.queue import Answer, BaseFailsError, CommitTest
from orchestrator.review.landing.semantic import PairTest, find_all_conflicts
from tests.support.landing import branch, untouched
from tests.support.merges import WHEN, World
from tests.support.repository import git


class Check:
    """A check that fails where all files of a group exist, and counts its runs."""

    def __init__(self, world: World, *groups: set[str]) -> None:
        self.world = world
        self.groups = groups
        self.tested: list[str] = []

    def __call__(self, commit: str) -> Answer:
        self.tested.append(commit)
        names = set(git(self.world.repo, "ls-tree", "-r", "--name-only", commit).split())
        return "fail" if any(group <= names for group in self.groups) else "pass"


def matrix(
    world: World, check: CommitTest, *branches: Branch, base: str | None = None
) -> Conflicts:
    run = RunBranches("run", WHEN, False, branches)
    test = PairTest(test=check, identity="check")
    return find_all_conflicts(Repository(world.repo), run, branches, base or world.base, test)


def kinds(found: Conflicts) -> dict[tuple[int, int], str]:
    return {(pair.a, pair.b): pair.kind for pair in found.pairs}


def three(world: World) -> list[Branch]:
    return [branch(world, one, {f"f{one}": f"{one}\n"}) for one in (1, 2, 3)]


def test_pair_that_fails_together_is_a_semantic_conflict(world: World) -> None:
    branches = three(world)
    before = untouched(world)
    found = matrix(world, Check(world, {"f1", "f2"}), *branches)
    assert untouched(world) == before
    assert {pair for pair, kind in kinds(found).items() if kind != "clean"} == {(1, 2)}
    assert kinds(found)[1, 2] == "semantic"
    assert ([pair.b for pair in found.conflicting], found.failing) == ([2], ())


def test_second_time_runs_no_check(world: World) -> None:
    branches = three(world)
    matrix(world, Check(world, {"f1", "f2"}), *branches)
    again = Check(world, {"f1", "f2"})
    assert kinds(matrix(world, again, *branches))[1, 2] == "semantic"
    assert again.tested == []


def test_pairs_with_a_worker_that_fails_alone_are_not_tested(world: World) -> None:
    found = matrix(world, Check(world, {"f2"}), *three(world))
    assert (found.failing, found.conflicting) == ((2,), ())


def test_worker_that_passes_alone_can_fail_on_a_newer_base(world: World) -> None:
    branches = three(world)
    newer = world.commit({"new": "x\n"})
    found = matrix(world, Check(world, {"new", "f3"}), *branches, base=newer)
    assert (kinds(found)[0, 3], found.failing) == ("semantic", ())


def test_pairs_with_conflicts_are_not_tested(world: World) -> None:
    one, two = branch(world, 1, {"a.txt": "x\n"}), branch(world, 2, {"a.txt": "y\n"})
    check = Check(world)
    assert kinds(matrix(world, check, one, two))[1, 2] == "text"
    assert len(check.tested) == 3


def test_failure_counts_only_if_it_is_repeated(world: World) -> None:
    branches = three(world)
    failed: set[str] = set()

    def flaky(commit: str) -> Answer:
        answer: Answer = "pass" if commit in failed else "fail"
        failed.add(commit)
        return answer

    found = matrix(world, flaky, *branches)
    assert (found.conflicting, found.failing) == ((), ())


def test_failing_base_is_an_error(world: World) -> None:
    with pytest.raises(BaseFailsError):
        matrix(world, Check(world, {"a.txt"}), *three(world))
