"""Tests that nothing moves where the target or its checkout is not fit for a merge."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.base.errors import OrchestratorError
from orchestrator.repository.repository import Repository
from orchestrator.review.landing import checkout, land
from orchestrator.review.landing import merge as merging
from orchestrator.review.landing.land import undo
from tests.support.errors import raises
from tests.support.landing import branch, merge, untouched
from tests.support.merges import NUMBERS, World
from tests.support.repository import git


def edit(world: World) -> None:
    (world.repo / "a.txt").write_text("the user's own edit\n")


def stage(world: World) -> None:
    edit(world)
    git(world.repo, "add", "a.txt")


def delete(world: World) -> None:
    git(world.repo, "rm", "-q", "--cached", "a.txt")


def untracked(world: World) -> None:
    (world.repo / "new").write_text("not tracked\n")


def ignored(world: World) -> None:
    (world.repo / ".git" / "info" / "exclude").write_text("/new\n")
    untracked(world)


def ignored_directory(world: World) -> None:
    (world.repo / ".git" / "info" / "exclude").write_text("/new\n")
    (world.repo / "new").mkdir()
    (world.repo / "new" / "kept").write_text("ignored\n")


def file_for_directory(world: World) -> None:
    (world.repo / ".git" / "info" / "exclude").write_text("/dir\n")
    (world.repo / "dir").write_text("ignored\n")


def link_for_directory(world: World) -> None:
    (world.repo / ".git" / "info" / "exclude").write_text("/dir\n")
    (world.repo / "dir").symlink_to("/tmp")


def index_lock(world: World) -> None:
    (world.repo / ".git" / "index.lock").touch()


def conflicting_merge(world: World) -> None:
    other = world.commit({"numbers": NUMBERS.replace("7\n", "x\n", 1)})
    mine = world.commit({"numbers": NUMBERS.replace("7\n", "y\n", 1)})
    git(world.repo, "reset", "-q", "--hard", mine)
    subprocess.run(["git", "merge", "-q", other], cwd=world.repo, check=False, capture_output=True)
    assert (world.repo / ".git" / "MERGE_HEAD").exists()


def rebase_under_way(world: World) -> None:
    mine = world.commit({"numbers": NUMBERS.replace("7\n", "y\n", 1)})
    git(world.repo, "branch", "upstream", world.commit({"numbers": "x\n"}))
    git(world.repo, "reset", "-q", "--hard", mine)
    subprocess.run(["git", "rebase", "upstream"], cwd=world.repo, check=False, capture_output=True)
    assert (world.repo / ".git" / "rebase-merge").is_dir()


def cherry_pick(world: World) -> None:
    git(world.repo, "reset", "-q", "--hard", world.commit({"numbers": "y\n"}))
    pick = world.commit({"numbers": "z\n"})
    subprocess.run(["git", "cherry-pick", pick], cwd=world.repo, check=False, capture_output=True)
    assert (world.repo / ".git" / "CHERRY_PICK_HEAD").exists()


def merge_without_a_change(world: World) -> None:
    other = world.commit({"numbers": "x\n"})
    git(world.repo, "merge", "-q", "--strategy", "ours", "--no-commit", other)
    assert (world.repo / ".git" / "MERGE_HEAD").exists()
    assert git(world.repo, "status", "--porcelain") == ""


def cherry_pick_without_a_change(world: World) -> None:
    pick = ["git", "cherry-pick", "HEAD"]
    subprocess.run(pick, cwd=world.repo, check=False, capture_output=True)
    assert (world.repo / ".git" / "CHERRY_PICK_HEAD").exists()
    assert git(world.repo, "status", "--porcelain") == ""


def full_disk(world: World) -> None:
    """The real state of the disk with no free block."""


UNFIT: dict[str, Callable[[World], None]] = {
    one.__name__: one
    for one in (
        edit, stage, delete, untracked, ignored, ignored_directory, file_for_directory,
        link_for_directory, index_lock, conflicting_merge, rebase_under_way, cherry_pick,
        merge_without_a_change, cherry_pick_without_a_change, full_disk,
    )
}  # fmt: skip


@pytest.mark.variants("before-*", "between-edit", "between-full*", "between-rebase*")
@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.parametrize("when", ["before", "between"])
def test_unfit_target_is_refused_and_nothing_moves(
    world: World, name: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target becomes unfit before the merge, or between the decision and the landing."""
    one = branch(world, 1, {"a.txt": "x\n", "new": "n\n", "dir/inner": "i\n"})
    seen = []

    def spoil() -> None:
        UNFIT[name](world)
        if name == "full_disk":
            state = os.statvfs(world.repo)
            full = os.statvfs_result((*state[:3], 0, 0, *state[5:]))
            monkeypatch.setattr(checkout.os, "statvfs", lambda _: full)
        seen.append(untouched(world))

    if when == "before":
        spoil()
    else:
        real = merging.land

        def landing(*given: object) -> None:
            spoil()
            real(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(merging, "land", landing)
    into = "main" if name == "rebase_under_way" else None
    with pytest.raises(OrchestratorError) as caught:
        merge(world, one, into=into)
    assert caught.value.exit_code == 3
    assert caught.value.hint
    assert untouched(world) == seen[0]
    assert git(world.repo, "stash", "list") == ""


def test_target_that_moves_meanwhile_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = branch(world, 1, {"a.txt": "x\n"})
    real = merging.land

    def landing(*given: object) -> None:
        git(world.repo, "commit", "-q", "--allow-empty", "-m", "meanwhile")
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(merging, "land", landing)
    with raises("target.changed", "`main`") as caught:
        merge(world, one)
    assert caught.value.exit_code == 3
    assert git(world.repo, "log", "-1", "--format=%s") == "meanwhile"
    assert (world.repo / "a.txt").read_text() == "a\n"


def test_ref_that_moves_after_the_last_check_is_not_overwritten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = branch(world, 1, {"a.txt": "x\n"})
    real = land.note_under_way

    def noting(*given: object) -> None:
        git(world.repo, "commit", "-q", "--allow-empty", "-m", "meanwhile")
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(land, "note_under_way", noting)
    with raises("target.not-moved"):
        merge(world, one)
    assert git(world.repo, "log", "-1", "--format=%s") == "meanwhile"
    assert git(world.repo, "status", "--porcelain") == ""


def test_file_that_changes_after_the_last_check_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = branch(world, 1, {"a.txt": "x\n", "new": "n\n"})
    real = land.note_under_way

    def noting(*given: object) -> None:
        edit(world)
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(land, "note_under_way", noting)
    with raises("target.edited"):
        merge(world, one)
    assert git(world.repo, "rev-parse", "main") == world.base
    assert git(world.repo, "status", "--porcelain") == " M a.txt"


def test_checkout_that_disappears_meanwhile_is_noticed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    git(world.repo, "worktree", "add", "-q", "-b", "release", str(elsewhere))
    one = branch(world, 1, {"a.txt": "x\n"})
    real = merging.land

    def landing(*given: object) -> None:
        shutil.rmtree(elsewhere)
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(merging, "land", landing)
    with raises("target.worktree-missing"):
        merge(world, one, into="release")
    assert git(world.repo, "rev-parse", "release") == world.base


def test_edits_of_other_files_are_kept(world: World) -> None:
    (world.repo / "src" / "app.py").write_text("edit\n")
    (world.repo / "staged").write_text("staged\n")
    git(world.repo, "add", "staged")
    before = git(world.repo, "status", "--porcelain")
    merge(world, branch(world, 1, {"a.txt": "x\n"}))
    assert git(world.repo, "status", "--porcelain") == before
    assert (world.repo / "a.txt").read_text() == "x\n"
    undo(Repository(world.repo), into=None, run_id=None)
    assert git(world.repo, "status", "--porcelain") == before


def test_rebase_of_the_target_in_another_worktree_is_noticed(world: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    git(world.repo, "branch", "release", world.commit({"numbers": "y\n"}))
    git(world.repo, "worktree", "add", "-q", str(elsewhere), "release")
    git(world.repo, "branch", "upstream", world.commit({"numbers": "x\n"}))
    subprocess.run(["git", "rebase", "upstream"], cwd=elsewhere, check=False, capture_output=True)
    with raises("operation.in-progress", "`release`"):
        merge(world, branch(world, 1, {"a.txt": "x\n"}), into="release")


@pytest.mark.parametrize("name", ["edit", "rebase_under_way", "index_lock"])
def test_undo_is_refused_where_it_would_lose_something(world: World, name: str) -> None:
    merge(world, branch(world, 1, {"a.txt": "x\n"}))
    UNFIT[name](world)
    before = untouched(world)
    with pytest.raises(OrchestratorError) as caught:
        undo(Repository(world.repo), into="main", run_id=None)
    assert caught.value.exit_code == 3
    assert untouched(world) == before


def test_undo_after_a_commit_on_top_is_refused(world: World) -> None:
    merge(world, branch(world, 1, {"a.txt": "x\n"}))
    git(world.repo, "commit", "-q", "--allow-empty", "-m", "on top")
    before = untouched(world)
    with raises("merge.superseded", "worker 1", "`main`"):
        undo(Repository(world.repo), into=None, run_id=None)
    assert untouched(world) == before


@pytest.mark.variants("merge-None", "rebase-main", "apply-None")
@pytest.mark.parametrize(
    ("form", "into"),
    [("merge", None), ("squash", None), ("rebase", None), ("apply", None),
     ("merge", "main"), ("squash", "main"), ("rebase", "main")],
)  # fmt: skip
def test_hint_for_a_merge_that_cannot_be_undone_works(
    world: World, form: str, into: str | None
) -> None:
    """The command works in any directory, whatever git's configuration says about diffs."""
    changed = branch(world, 1, {"a.txt": "x\n"}), branch(world, 2, {"numbers": None, "new": "n\n"})
    before = world.show("main", "a.txt"), world.show("main", "numbers")
    if into is not None:
        git(world.repo, "checkout", "-q", "--detach")
    merge(world, *changed, form=form, **({} if into is None else {"into": into}))
    assert form == "apply" or world.show("main", "a.txt") == "x"
    tree = git(world.repo, "commit-tree", "-p", "main", "-m", "on top", "main^{tree}")
    git(world.repo, "update-ref", "refs/heads/main", tree)
    with pytest.raises(OrchestratorError) as caught:
        undo(Repository(world.repo), into=into, run_id=None)
    hint = caught.value.hint or ""
    *words, command, _ = hint.split("`")
    if into is not None:
        assert words[:2] == ["check ", "main"]
        git(world.repo, "checkout", "-q", "main")
    for name, value in (("diff.noprefix", "true"), ("color.ui", "always")):
        git(world.repo, "config", name, value)
    (world.repo / "below").mkdir()
    subprocess.run(
        ["sh", "-c", command], cwd=world.repo / "below", check=True, capture_output=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    files = (world.repo / name for name in ("a.txt", "numbers"))
    assert tuple(path.read_text().strip() for path in files) == before
    assert not (world.repo / "new").exists()


def test_undo_after_a_reset_below_the_merge_names_the_reflog(world: World) -> None:
    merge(world, branch(world, 1, {"a.txt": "x\n"}))
    git(
        world.repo,
        "reset",
        "-q",
        "--hard",
        git(world.repo, "commit-tree", "-m", "x", "main^{tree}"),
    )
    with raises("merge.gone", "`main`") as caught:
        undo(Repository(world.repo), into=None, run_id=None)
    assert caught.value.hint == "`git reflog main` lists earlier commits of the branch"


@pytest.mark.parametrize("how", ["removed", "locked", "moved"])
def test_worktree_that_is_not_at_its_place_is_not_ignored(
    world: World, tmp_path: Path, how: str
) -> None:
    """Git also refuses to move the branch: the index of the worktree would undo the merge."""
    elsewhere = tmp_path / "elsewhere"
    git(world.repo, "worktree", "add", "-q", "-b", "release", str(elsewhere))
    if how == "locked":
        git(world.repo, "worktree", "lock", str(elsewhere))
    elsewhere.rename(tmp_path / "away")
    if how == "removed":
        shutil.rmtree(tmp_path / "away")

    with raises("target.worktree-missing"):
        merge(world, branch(world, 1, {"a.txt": "x\n"}), into="release")

    assert git(world.repo, "rev-parse", "release") == world.base


def test_branch_that_will_be_moved_by_a_rebase_is_refused(world: World, tmp_path: Path) -> None:
    """`git rebase --update-refs` moves other branches than its own at its end."""
    elsewhere = tmp_path / "elsewhere"
    first = world.commit({"other": "1\n"})
    git(world.repo, "branch", "part", first)
    git(world.repo, "branch", "whole", world.commit({"other": "1\n", "numbers": "y\n"}, first))
    git(world.repo, "worktree", "add", "-q", str(elsewhere), "whole")
    git(world.repo, "branch", "upstream", world.commit({"numbers": "x\n"}))
    rebase = ["git", "rebase", "--update-refs", "upstream"]
    subprocess.run(rebase, cwd=elsewhere, check=False, capture_output=True)

    with raises("operation.in-progress", "`part`"):
        merge(world, branch(world, 1, {"a.txt": "x\n"}), into="part")


@pytest.mark.parametrize("into", ["trunk", "main", None])
def test_checkout_of_a_branch_with_two_names_is_updated(world: World, into: str | None) -> None:
    git(world.repo, "symbolic-ref", "refs/heads/trunk", "refs/heads/main")
    git(world.repo, "symbolic-ref", "HEAD", "refs/heads/trunk")

    merge(world, branch(world, 1, {"new": "n\n"}), into=into)

    assert git(world.repo, "show", "refs/heads/main:new") == "n"
    assert git(world.repo, "status", "--porcelain") == ""


def test_checkout_whose_head_is_a_link_is_updated(world: World) -> None:
    head = world.repo / ".git" / "HEAD"
    head.unlink()
    head.symlink_to("refs/heads/main")

    merge(world, branch(world, 1, {"new": "n\n"}), into="main")

    assert git(world.repo, "status", "--porcelain") == ""
