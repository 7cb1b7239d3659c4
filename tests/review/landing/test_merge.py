"""Tests of merging workers' branches into the branch that is checked out."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.faces.cli.output.merge_text import show_merged
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.land import undo
from tests.support.errors import raises
from tests.support.landing import branch, merge, untouched
from tests.support.merges import NUMBERS, World
from tests.support.repository import git


def head(world: World) -> str:
    return git(world.repo, "rev-parse", "main")


def log(world: World, form: str = "%s", *options: str) -> list[str]:
    return git(world.repo, "log", f"--format={form}", *options, f"{world.base}..main").splitlines()


def clean(world: World) -> bool:
    return git(world.repo, "status", "--porcelain") == ""


def test_merge_commits_name_the_workers_and_the_files_are_there(world: World) -> None:
    one = branch(world, 1, {"a.txt": "x\n"})
    two = branch(world, 2, {"new": "n\n", "numbers": None})
    merged = merge(world, one, two)
    assert (merged.target, merged.before, merged.after) == ("main", world.base, head(world))
    assert (merged.landed, merged.contained, merged.left) == ((1, 2), (), ())
    assert log(world, "%P|%s|%an", "--first-parent") == [
        f"{git(world.repo, 'rev-parse', 'main^1')} {two.commit}|Merge worker 2: task 2|user",
        f"{world.base} {one.commit}|Merge worker 1: task 1|user",
    ]
    assert "Orchestrator-Run: run" in git(world.repo, "log", "-1", "--format=%B")
    assert clean(world)
    assert (world.repo / "a.txt").read_text() == "x\n"
    assert (world.repo / "new").exists()
    assert not (world.repo / "numbers").exists()
    assert git(world.repo, "reflog", "-1", "--format=%gs", "main").startswith("orchestrator merge")
    assert git(world.repo, "reflog", "-1", "--format=%gs").startswith("orchestrator merge")
    assert git(world.repo, "fsck", "--strict", "--no-dangling") == ""


def test_squash_makes_one_commit_of_each_worker(world: World) -> None:
    first = world.commit({"a.txt": "x\n"})
    one = branch(world, 1, {"new": "n\n"}, first)
    two = branch(world, 2, {"other": "o\n"})
    merge(world, one, two, form="squash")
    assert log(world) == ["Worker 2: task 2", "Worker 1: task 1"]
    assert log(world, "%P")[1] == world.base
    assert git(world.repo, "show", "main:a.txt") == "x"
    assert clean(world)


def test_rebase_keeps_messages_authors_and_dates_and_equals_git_rebase(world: World) -> None:
    env = {"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.org",
           "GIT_AUTHOR_DATE": "@1600000000 +0200"}  # fmt: skip
    tips = []
    for name in ("x", "y"):
        tree = world.commit({f"{name}.txt": "1\n", "numbers": f"-{name}\n{NUMBERS}"}, *tips[-1:])
        tips.append(subprocess.run(
            ["git", "commit-tree", f"{tree}^{{tree}}", "-p", tips[-1] if tips else world.base,
             "-m", f"add {name}\n\nwith a body"],
            cwd=world.repo, env={**env, "PATH": "/usr/bin:/bin", "GIT_COMMITTER_NAME": "w",
                                 "GIT_COMMITTER_EMAIL": "w@example.org"},
            capture_output=True, text=True, check=True).stdout.strip())  # fmt: skip
    one = branch(world, 1, {}, tips[-1])
    (world.repo / "numbers").write_text(NUMBERS.replace("20\n", "twenty\n"))
    git(world.repo, "commit", "-qam", "meanwhile")
    git(world.repo, "branch", "expected", one.commit)
    meanwhile = head(world)
    merge(world, one, form="rebase")
    rows = git(world.repo, "log", "--format=%an|%ad|%cn|%s|%b", "--date=raw", f"{meanwhile}..main")
    assert [row for row in rows.splitlines() if row] == [
        "Ann|1600000000 +0200|user|add y|with a body",
        "Ann|1600000000 +0200|user|add x|with a body",
    ]
    git(world.repo, "rebase", "-q", meanwhile, "expected")
    assert git(world.repo, "rev-parse", "expected^{tree}") == git(
        world.repo, "rev-parse", "main^{tree}"
    )


HOSTILE = "tidy [skip ci]\n\nFixes #1; cc @octocat\n/close\n"


@pytest.mark.parametrize(
    ("form", "kept"), [("merge", True), ("rebase", True), ("squash", False), ("apply", False)]
)
def test_kept_messages_on_which_a_forge_acts_are_named(
    world: World, form: str, kept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = branch(world, 1, {"plain": "p\n"})
    one = branch(world, 2, {"new": "n\n"})
    tree = f"{one.commit}^{{tree}}"
    commit = git(world.repo, "commit-tree", tree, "-p", world.base, "-m", HOSTILE)
    one = replace(one, commit=commit, task="Fixes #2 @octocat")
    merged = merge(world, plain, one, form=form)
    assert merged.landed == (1, 2)
    assert [found.subject for found in merged.kept] == (["tidy [skip ci]"] if kept else [])
    show_merged(merged)
    said = capsys.readouterr().err
    assert ("closes an issue, mentions somebody" in said) is kept
    assert ("--as squash" in said) is kept


def test_rebase_of_merge_commits_is_refused(world: World) -> None:
    x, y = world.commit({"x": "1\n"}), world.commit({"y": "1\n"})
    one = branch(world, 1, {"x": "1\n", "y": "1\n"}, x, y)
    merged = merge(world, one, form="rebase")
    assert [(left.worker_id, left.reason) for left in merged.left] == [(1, "merges")]
    assert head(world) == world.base


def test_apply_changes_files_and_index_only(world: World) -> None:
    one = branch(world, 1, {"a.txt": "x\n", "new": "n\n"})
    (world.repo / "src" / "app.py").write_text("the user's own edit\n")
    merge(world, one, form="apply")
    assert head(world) == world.base
    assert git(world.repo, "status", "--porcelain").splitlines() == [
        "M  a.txt", "A  new", " M src/app.py",
    ]  # fmt: skip
    undo(Repository(world.repo), into=None, run_id=None)
    assert git(world.repo, "status", "--porcelain") == " M src/app.py"
    assert not (world.repo / "new").exists()


def test_conflict_stops_everything_or_is_skipped(world: World) -> None:
    branches = [
        branch(world, 1, {"a.txt": "x\n", "one": "1\n"}),
        branch(world, 2, {"a.txt": "y\n"}),
        branch(world, 3, {"three": "3\n"}),
    ]
    before = untouched(world)
    stopped = merge(world, *branches)
    assert untouched(world) == before
    assert (stopped.landed, stopped.after) == ((), world.base)
    assert [(left.worker_id, left.reason, left.files, left.others) for left in stopped.left] == [
        (2, "conflict", ("a.txt",), (1,)), (1, "stopped", (), ()), (3, "stopped", (), ()),
    ]  # fmt: skip
    skipped = merge(world, *branches, on_conflict="skip")
    assert skipped.landed == (1, 3)
    assert [left.worker_id for left in skipped.left] == [2]
    assert head(world) == skipped.after


def test_dry_run_computes_the_same_commit_and_changes_nothing(world: World) -> None:
    one = branch(world, 1, {"a.txt": "x\n"})
    before = untouched(world)
    dry = merge(world, one, dry_run=True)
    assert untouched(world) == before
    assert git(world.repo, "for-each-ref", "refs/orchestrator") == ""
    wet = merge(world, one)
    assert (wet.after, wet.landed) == (dry.after, dry.landed)


def test_merged_and_empty_workers_have_nothing_to_add(world: World) -> None:
    one = branch(world, 1, {"a.txt": "x\n"})
    merge(world, one)
    at = head(world)
    again = merge(world, one, branch(world, 2, {}))
    assert (again.contained, again.landed, again.left) == ((1, 2), (), ())
    assert head(world) == at


def test_branch_that_contains_another_lands_both(world: World) -> None:
    one = branch(world, 1, {"a.txt": "x\n"})
    two = branch(world, 2, {"b.txt": "y\n"}, one.commit)
    merged = merge(world, two, one)
    assert (merged.landed, merged.contained) == ((2,), (1,))


@pytest.mark.parametrize("number", [3, 7])
def test_best_order_has_the_fewest_conflicts(world: World, number: int) -> None:
    """The first branch conflicts with all others, which do not conflict with each other."""
    wide = branch(world, 1, {f"f{one}": "wide\n" for one in range(2, number + 1)})
    rest = [branch(world, one, {f"f{one}": "narrow\n"}) for one in range(2, number + 1)]
    given = merge(world, wide, *rest, on_conflict="skip", dry_run=True)
    assert given.landed == (1,)
    best = merge(world, wide, *rest, on_conflict="skip", order="best")
    assert best.landed == tuple(range(2, number + 1))
    assert best.given_conflicts == number - 1
    assert [left.worker_id for left in best.left] == [1]


def test_given_order_is_kept_where_nothing_conflicts(world: World) -> None:
    branches = [branch(world, one, {f"f{one}": "x\n" * one}) for one in (3, 1, 2)]
    merged = merge(world, *branches, order="best")
    assert (merged.landed, merged.given_conflicts) == ((3, 1, 2), 0)


def test_branch_that_is_not_checked_out_moves_without_any_file(world: World) -> None:
    git(world.repo, "branch", "release")
    one = branch(world, 1, {"a.txt": "x\n"})
    merge(world, one, into="release")
    assert git(world.repo, "show", "release:a.txt") == "x"
    assert head(world) == world.base
    assert clean(world)
    with raises("branch.not-checked-out"):
        merge(world, one, into="release", form="apply")


def test_branch_of_another_worktree_is_brought_forward_there(world: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where"
    git(world.repo, "worktree", "add", "-q", "-b", "release", str(elsewhere))
    merge(world, branch(world, 1, {"a.txt": "x\n"}), into="release")
    assert (elsewhere / "a.txt").read_text() == "x\n"
    assert git(elsewhere, "status", "--porcelain") == ""
    assert clean(world)
    undo(Repository(world.repo), into="release", run_id=None)
    assert (elsewhere / "a.txt").read_text() == "a\n"
    assert git(elsewhere, "status", "--porcelain") == ""


def test_merge_from_a_linked_worktree(world: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "linked"
    git(world.repo, "worktree", "add", "-q", "-b", "topic", str(elsewhere))
    one = branch(world, 1, {"a.txt": "x\n"})
    merged = merge(World(elsewhere, tmp_path), one)
    assert merged.target == "topic"
    assert git(elsewhere, "status", "--porcelain") == ""
    assert merge(World(elsewhere, tmp_path), one, into="main").target == "main"
    assert (world.repo / "a.txt").read_text() == "x\n"
    assert clean(world)


@pytest.mark.parametrize(("into", "said", "hint"), [
    ("nowhere", "there is no branch `nowhere`", "`git branch nowhere` creates the branch"),
    ("architect/parallel-1", "it is the branch of a worker", "name a branch of your own"),
    ("--upload-pack=x", "there is no branch", "`git branch` lists the branches"),
    ("main..x", "there is no branch", "`git branch` lists the branches"),
    ("HEAD", "there is no branch", "`git branch` lists the branches"),
])  # fmt: skip
def test_wrong_targets_are_errors(world: World, into: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        merge(world, branch(world, 1, {"a.txt": "x\n"}), into=into)
    assert caught.value.hint == hint


def test_detached_head_is_an_error(world: World) -> None:
    git(world.repo, "checkout", "-q", "--detach")
    with raises("branch.none-checked-out"):
        merge(world, branch(world, 1, {"a.txt": "x\n"}))


def test_merge_that_breaks_a_rule_is_left(world: World) -> None:
    """Each branch is harmless alone; together they have a directory that git takes for its own."""
    one = branch(world, 1, {"x/HEAD": "ref: refs/heads/main\n"})
    two = branch(world, 2, {"x/objects/y": "y"})
    merged = merge(world, one, two, on_conflict="skip")
    assert merged.landed == (1,)
    assert [(left.worker_id, left.reason) for left in merged.left] == [(2, "refused")]
    assert "contains a git directory" in merged.left[0].message


def files_of(world: World) -> dict[str, bytes]:
    paths = (path for path in world.repo.rglob("*") if path.is_file())
    named = {str(path.relative_to(world.repo)): path for path in paths}
    return {name: path.read_bytes() for name, path in named.items() if name[:5] != ".git/"}


def test_undo_is_exact_and_repeatable(world: World) -> None:
    repository = Repository(world.repo)
    one, two = branch(world, 1, {"a.txt": "x\n"}), branch(world, 2, {"new": "n\n", "numbers": None})
    (world.repo / "untracked").write_text("mine\n")
    (world.repo / "src" / "app.py").write_text("an edit\n")
    before = files_of(world)
    first = merge(world, one).after
    between = files_of(world)
    merge(world, two)
    assert undo(repository, into=None, run_id=None).workers == (2,)
    assert (head(world), files_of(world)) == (first, between)
    assert undo(repository, into=None, run_id=None).workers == (1,)
    assert (head(world), files_of(world)) == (world.base, before)
    assert git(world.repo, "status", "--porcelain") == " M src/app.py\n?? untracked"
    assert git(world.repo, "for-each-ref", "refs/orchestrator") == ""
    with raises("merge.unrecorded", "`main`"):
        undo(repository, into=None, run_id=None)
