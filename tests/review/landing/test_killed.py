"""Tests that a merge or undo that was killed at any step is completed by the next one."""

import os
import signal
import threading
from pathlib import Path

import pytest

from orchestrator.repository.repository import Repository
from orchestrator.review.landing.land import complete, undo
from tests.support import forks
from tests.support.errors import raises
from tests.support.landing import branch, merge
from tests.support.merges import World
from tests.support.repository import git

ROOT = Path(__file__).parents[3]
MERGE = "orchestrator.review.landing.merge:"
LAND = "orchestrator.review.landing.land:"
STEPS = [
    f"{MERGE}complete", f"{MERGE}import_commits", f"{MERGE}land", f"{LAND}write_record",
    f"{LAND}note_under_way", f"{LAND}bring_forward", f"{LAND}forget_under_way",
]  # fmt: skip
MOVE = f"{LAND}_move"
UNDO = [f"{LAND}note_under_way", MOVE, f"{LAND}bring_forward", f"{LAND}forget_under_way",
        f"{LAND}drop_record"]  # fmt: skip
POINTS = [(step, when) for step in [*STEPS, MOVE] for when in ("before", "after")]
OFTEN = (
    "*:import_commits-after",
    "*:note_under_way-after",
    "*:_move-after",
    "*:bring_forward-after",
)
"""Points of `make test`: those between which something else is on disk."""


def die(world: World, target: str, when: str, form: str, action: str, *commits: str) -> None:
    words = (target, when, str(world.repo), form, action, world.base, *commits)
    done = forks.run("tests.support.dying_merge", words, cwd=ROOT, env=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(("step", "when"), POINTS)
@pytest.mark.variants(*OFTEN)
def test_killed_merge_is_completed_by_the_next(world: World, step: str, when: str) -> None:
    one, two = branch(world, 1, {"a.txt": "x\n"}), branch(world, 2, {"new": "n\n", "numbers": None})
    (world.repo / "untracked").write_text("mine\n")
    expected = merge(world, one, two, dry_run=True).after

    die(world, step, when, "merge", "merge", one.commit, two.commit)

    assert git(world.repo, "rev-parse", "main") in (world.base, expected)
    again = merge(world, one, two)
    assert (again.after, again.left) == (expected, ())
    assert git(world.repo, "rev-parse", "main") == expected
    assert git(world.repo, "status", "--porcelain") == "?? untracked"
    assert {path.name for path in (world.repo / ".git" / "orchestrator").iterdir()} == {
        "lock", "landing.lock",
    }  # fmt: skip
    assert undo(Repository(world.repo), into=None, run_id=None).workers == (1, 2)
    assert git(world.repo, "rev-parse", "main") == world.base
    assert git(world.repo, "status", "--porcelain") == "?? untracked"


@pytest.mark.parametrize(("step", "when"), [(one, w) for one in UNDO for w in ("before", "after")])
@pytest.mark.variants("*:_move-after", "*:bring_forward-after")
def test_killed_undo_is_completed_by_the_next(world: World, step: str, when: str) -> None:
    one = branch(world, 1, {"a.txt": "x\n", "new": "n\n"})
    landed = merge(world, one).after
    die(world, step, when, "merge", "undo")
    assert git(world.repo, "rev-parse", "main") in (world.base, landed)
    marker = world.repo / ".git" / "orchestrator" / "landing.json"
    if marker.exists() or git(world.repo, "for-each-ref", "refs/orchestrator/landed"):
        assert undo(Repository(world.repo), into=None, run_id=None).workers == (1,)
    assert git(world.repo, "rev-parse", "main") == world.base
    assert git(world.repo, "status", "--porcelain") == ""
    assert git(world.repo, "for-each-ref", "refs/orchestrator/landed") == ""


@pytest.mark.variants("after")
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_apply_is_completed_by_the_next(world: World, when: str) -> None:
    one = branch(world, 1, {"a.txt": "x\n", "new": "n\n"})
    die(world, f"{LAND}bring_forward", when, "apply", "merge", one.commit)
    complete(Repository(world.repo))
    assert git(world.repo, "rev-parse", "main") == world.base
    assert git(world.repo, "status", "--porcelain").splitlines() == ["M  a.txt", "A  new"]
    undo(Repository(world.repo), into=None, run_id=None)
    assert git(world.repo, "status", "--porcelain") == ""


def test_merge_that_died_before_the_branch_moved_is_not_undone(world: World) -> None:
    one, two = branch(world, 1, {"a.txt": "x\n"}), branch(world, 2, {"new": "n\n"})
    merge(world, one)
    die(world, f"{LAND}write_record", "after", "merge", "merge", two.commit)
    repository = Repository(world.repo)

    assert undo(repository, into=None, run_id=None).workers == (1,)

    assert git(world.repo, "rev-parse", "main") == world.base
    assert git(world.repo, "for-each-ref", "refs/orchestrator/landed") == ""
    with raises("merge.unrecorded", "`main`"):
        undo(repository, into=None, run_id=None)


def test_edit_after_a_killed_merge_is_not_overwritten(world: World) -> None:
    one = branch(world, 1, {"a.txt": "x\n", "new": "n\n"})
    die(world, f"{LAND}bring_forward", "before", "merge", "merge", one.commit)
    (world.repo / "a.txt").write_text("the user's own edit\n")
    with pytest.raises(Exception, match="died before all files"):
        complete(Repository(world.repo))
    assert (world.repo / "a.txt").read_text() == "the user's own edit\n"
    (world.repo / "a.txt").write_text("a\n")
    complete(Repository(world.repo))
    assert git(world.repo, "status", "--porcelain") == ""


def test_commit_on_top_of_a_killed_merge_ends_it(world: World) -> None:
    one = branch(world, 1, {"a.txt": "x\n"})
    die(world, f"{LAND}bring_forward", "before", "merge", "merge", one.commit)
    git(world.repo, "reset", "-q", "--hard")
    git(world.repo, "commit", "-q", "--allow-empty", "-m", "on top")
    complete(Repository(world.repo))
    assert git(world.repo, "log", "-1", "--format=%s") == "on top"
    assert (world.repo / "a.txt").read_text() == "x\n"


def test_two_merges_at_once_do_not_mix(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.review.landing import merge as merging

    one, two = branch(world, 1, {"a.txt": "x\n"}), branch(world, 2, {"new": "n\n"})
    inside, go_on = threading.Event(), threading.Event()
    real = merging.land

    def landing(*given: object) -> None:
        inside.set()
        assert go_on.wait(60)
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(merging, "land", landing)
    first = threading.Thread(target=merge, args=(world, one))
    first.start()
    assert inside.wait(60)
    with pytest.raises(Exception, match="another `orchestrator merge` is running"):
        merge(world, two)
    go_on.set()
    first.join()
    monkeypatch.setattr(merging, "land", real)
    assert merge(world, two).landed == (2,)
    assert git(world.repo, "status", "--porcelain") == ""
