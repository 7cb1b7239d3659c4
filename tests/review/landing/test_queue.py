"""Tests of the queue, which tests prefixes of a chain and lands the longest that passes."""

import random
import subprocess
from collections.abc import Callable

import pytest

from orchestrator.repository.repository import Repository
from orchestrator.review.landing.queue import Answer, BaseFailsError
from orchestrator.review.landing.verdicts import StoredVerdicts
from tests.support.landing import branch, merge
from tests.support.merges import World
from tests.support.repository import git


class Checks:
    """A check that fails where a file exists, and counts its runs."""

    def __init__(self, world: World, *bad: str, answer: Callable[[Answer], Answer] | None = None):
        self.world = world
        self.bad = bad
        self.tested: list[str] = []
        self._answer = answer or (lambda answer: answer)

    def __call__(self, commit: str) -> Answer:
        self.tested.append(commit)
        names = git(self.world.repo, "ls-tree", "-r", "--name-only", commit).split()
        return self._answer("fail" if {*names} & {*self.bad} else "pass")


def branches(world: World, number: int):
    return [branch(world, one, {f"f{one}": f"{one}\n"}) for one in range(1, number + 1)]


def mergify_count(number: int, culprit: int) -> int:
    """Return how many commits Mergify tests for a batch with one culprit.

    A failed batch is cut into halves. The first half is tested alone, and the second one on top of
    it; that is the failed batch again. The part ahead of the failure is merged, and the failing
    part is cut again. A single pull request that must be the culprit is not tested again. The
    others behind the culprit are a new batch.
    """
    low, high, tested = 0, number, 1
    while high - low > 1:
        middle = (low + high) // 2
        tested += 1
        low, high = (low, middle) if culprit <= middle else (middle, high)
    return tested + (culprit < number)


@pytest.mark.parametrize("culprit", range(1, 9))
@pytest.mark.variants("1", "4", "8")
def test_one_culprit_of_eight_is_left_and_everyone_else_lands(world: World, culprit: int) -> None:
    checks = Checks(world, f"f{culprit}")
    eight = branches(world, 8)
    merged = merge(world, *eight, test=checks)
    assert merged.landed == tuple(one for one in range(1, 9) if one != culprit)
    (left,) = merged.left
    assert (left.worker_id, left.reason) == (culprit, "checks_failed")
    assert left.passes
    assert left.fails
    assert git(world.repo, "diff", "--name-only", left.passes, left.fails) == f"f{culprit}"
    assert git(world.repo, "rev-parse", "main") == merged.after
    assert merged.after in [*checks.tested, left.passes], "the landed commit was tested"
    assert len({*checks.tested} - {world.base}) <= mergify_count(8, culprit)
    assert len(checks.tested) <= 16, "with repetitions"

    again = Checks(world, f"f{culprit}")
    git(world.repo, "reset", "-q", "--hard", world.base)
    assert merge(world, *eight, test=again).after == merged.after
    assert again.tested == [], "every verdict was kept"


def test_two_culprits_are_left(world: World) -> None:
    merged = merge(world, *branches(world, 6), test=Checks(world, "f2", "f5"))
    assert merged.landed == (1, 3, 4, 6)
    assert [(left.worker_id, left.reason) for left in merged.left] == [
        (2, "checks_failed"), (5, "checks_failed"),
    ]  # fmt: skip


def test_two_branches_that_are_clean_by_text_but_broken_together(world: World) -> None:
    """One branch renames a function, the other one calls it by its old name."""
    (world.repo / "lib.py").write_text("def old():\n    return 1\n")
    (world.repo / "main.py").write_text("import lib\n\nlib.old()\n")
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-qm", "library")
    world.base = git(world.repo, "rev-parse", "HEAD")
    one = branch(world, 1, {"lib.py": "def new():\n    return 1\n",
                            "main.py": "import lib\n\nlib.new()\n"})  # fmt: skip
    two = branch(world, 2, {"other.py": "import lib\n\nlib.old()\n"})

    def runs(commit: str) -> Answer:
        place = world.scratch / commit
        git(world.repo, "worktree", "add", "-q", "--detach", str(place), commit)
        files = [path.name for path in place.glob("*.py") if path.name != "lib.py"]
        codes = [subprocess.run(["python3", file], cwd=place, capture_output=True).returncode
                 for file in files]  # fmt: skip
        git(world.repo, "worktree", "remove", "--force", str(place))
        return "fail" if any(codes) else "pass"

    merged = merge(world, one, two, test=runs)
    assert merged.landed == (1,)
    assert [(left.worker_id, left.reason) for left in merged.left] == [(2, "checks_failed")]


def test_conflicting_branch_is_left_and_the_others_land(world: World) -> None:
    one, two, three = (
        branch(world, 1, {"a.txt": "x\n"}),
        branch(world, 2, {"b.txt": "x\n"}),
        branch(world, 3, {"a.txt": "y\n"}),
    )
    merged = merge(world, one, two, three, test=Checks(world))
    assert merged.landed == (1, 2)
    assert [(left.worker_id, left.reason, left.files) for left in merged.left] == [
        (3, "conflict", ("a.txt",)),
    ]  # fmt: skip


def test_branch_that_conflicts_with_a_culprit_lands(world: World) -> None:
    one = branch(world, 1, {"a.txt": "x\n", "bad": "1\n"})
    two = branch(world, 2, {"a.txt": "y\n"})
    merged = merge(world, one, two, test=Checks(world, "bad"))
    assert (merged.landed, [left.worker_id for left in merged.left]) == ((2,), [1])


def test_failing_base_lands_nothing(world: World) -> None:
    with pytest.raises(
        BaseFailsError, match="the checks fail on the target branch itself"
    ) as caught:
        merge(world, *branches(world, 2), test=Checks(world, "a.txt"))
    assert caught.value.exit_code == 2
    assert git(world.repo, "rev-parse", "main") == world.base


@pytest.mark.parametrize("offset", range(3))
def test_check_that_fails_every_third_time_blames_no_branch(world: World, offset: int) -> None:
    count = iter(range(offset, 10_000))
    flaky = Checks(world, answer=lambda answer: "fail" if next(count) % 3 == 0 else answer)
    merged = merge(world, *branches(world, 5), test=flaky)
    assert (merged.landed, merged.left) == ((1, 2, 3, 4, 5), ())


def forget_verdicts(world: World) -> None:
    """Remove stored results, but not the knowledge that the check is unstable."""
    file = world.repo / ".git" / "orchestrator" / "verdicts.json"
    git_of_world = Repository(world.repo).git
    is_unstable = StoredVerdicts(file, git_of_world, "flaky").is_unstable
    file.unlink(missing_ok=True)
    if is_unstable:
        StoredVerdicts(file, git_of_world, "flaky").note_unstable()


@pytest.mark.extra
def test_check_that_fails_at_random_blames_no_branch_in_fifty_runs(world: World) -> None:
    """The check fails in a third of its runs. One of the branches is bad in half of the merges."""
    chance = random.Random(15)
    five = branches(world, 5)
    landed = 0
    for number in range(50):
        bad = f"f{chance.randint(1, 5)}" if number % 2 else "none"
        flaky = Checks(world, bad, answer=lambda one: "fail" if chance.random() < 1 / 3 else one)
        git(world.repo, "reset", "-q", "--hard", world.base)
        forget_verdicts(world)
        try:
            merged = merge(world, *five, test=flaky, tested_by="flaky")
        except BaseFailsError:
            continue
        blamed = {f"f{left.worker_id}" for left in merged.left if left.reason == "checks_failed"}
        assert blamed <= {bad}, f"run {number}"
        landed += bool(merged.landed)
    assert landed > 40


@pytest.mark.parametrize("when", range(1, 8))
@pytest.mark.variants("2", "6")
def test_test_without_answers_blames_no_branch(world: World, when: int) -> None:
    """The engine goes away during the queue, at each test in turn."""
    count = iter(range(1, 10_000))
    checks = Checks(world, "f3", answer=lambda answer: "none" if next(count) >= when else answer)
    merged = merge(world, *branches(world, 4), test=checks)
    assert {left.reason for left in merged.left} <= {"no_verdict", "checks_failed"}
    assert len(checks.tested) <= when + 3, "the queue ends soon after tests without an answer"
    assert [left.worker_id for left in merged.left if left.reason == "checks_failed"] in ([], [3])
    assert merged.after == git(world.repo, "rev-parse", "main")
    assert Repository(world.repo).resolve("main") == merged.after


def test_single_missing_answer_is_asked_for_again(world: World) -> None:
    count = iter(range(10_000))
    checks = Checks(world, answer=lambda answer: "none" if next(count) == 1 else answer)
    assert merge(world, *branches(world, 2), test=checks).landed == (1, 2)
