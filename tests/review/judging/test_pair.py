"""Tests of `compare N M`: two candidates of a judgement side by side."""

from orchestrator.faces.cli.output.judgement_table import pair_text
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.judgement import Judgement
from orchestrator.review.judging.pair import Pair, pair_of
from tests.support.errors import raises
from tests.support.judging import FAST, PRODUCT, RIGHT, judge
from tests.support.merges import World
from tests.support.repository import git

WRONG = {"calc.py": PRODUCT.replace("+", "-")}
LONGER = {"calc.py": RIGHT + "\n\nSIZE = 3\n", "notes.txt": "more\n"}


def compared(world: World, judgement: Judgement, one: int, other: int) -> Pair:
    return pair_of(Repository(world.repo), judgement, one, other)


def test_two_candidates_differ_in_the_first_column_of_those_between_them(world: World) -> None:
    judgement = judge(world, {"calc.py": RIGHT}, {}, WRONG, LONGER, checks=(FAST,))
    assert [one.worker_id for one in judgement.ranking] == [1, 4, 3, 2]
    assert [one.decided_by for one in judgement.ranking] == [
        "changed lines", "checks", "out", None,
    ]  # fmt: skip
    found = {
        pair: compared(world, judgement, *pair).decided_by
        for pair in ((1, 4), (1, 3), (3, 4), (1, 2), (2, 3))
    }
    assert found == {
        (1, 4): "changed lines", (1, 3): "checks", (3, 4): "checks",
        (1, 2): "out", (2, 3): "out",
    }  # fmt: skip
    pair = compared(world, judgement, 4, 1)
    assert (pair.better, [one.worker_id for one in pair.ranking]) == (1, [1, 4])
    assert [(one.path, one.added, one.removed) for one in pair.files or ()] == [
        ("calc.py", 3, 0), ("notes.txt", 1, 0),
    ]  # fmt: skip
    text = pair_text(pair)
    assert "worker 1 is before worker 4 by: changed lines" in text
    assert "  notes.txt +1 -0" in text.splitlines()


def test_same_change_is_reported_and_commits_may_be_gone(world: World) -> None:
    judgement = judge(world, {"calc.py": RIGHT}, {"calc.py": RIGHT + "\n"}, checks=(FAST,))
    pair = compared(world, judgement, 1, 2)
    assert pair.decided_by == "same change"
    git(world.repo, "update-ref", "-d", "refs/heads/architect/parallel-2")
    git(world.repo, "reflog", "expire", "--expire=now", "--all")
    git(world.repo, "gc", "-q", "--prune=now")
    gone = compared(world, judgement, 1, 2)
    assert gone.files is None
    assert "the commits of the workers are gone" in pair_text(gone)


def test_two_excluded_candidates_have_no_deciding_column(world: World) -> None:
    pair = compared(world, judge(world, {"calc.py": RIGHT}, {}, {}, checks=(FAST,)), 2, 3)
    assert (pair.decided_by, pair.better) == (None, 2)
    assert "worker 2 is before worker 3 by: number only" in pair_text(pair)


def test_only_judged_workers_are_compared(world: World) -> None:
    judgement = judge(world, {"calc.py": RIGHT}, WRONG, checks=(FAST,))
    with raises("worker.unjudged", "worker 3", "run run"):
        compared(world, judgement, 1, 3)
    with raises("comparison.same-worker"):
        compared(world, judgement, 1, 1)
