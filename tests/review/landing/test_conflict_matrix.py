"""Tests of the matrix of conflicts between the branches of workers."""

from collections.abc import Mapping

import pytest

from orchestrator.repository.commits import merge_tree
from orchestrator.review.landing import conflict_matrix as matrix
from tests.support.landing import branch, conflicts_of, snapshot_of
from tests.support.merges import NUMBERS, Content, World
from tests.support.repository import git

KINDS: Mapping[str, tuple[Mapping[str, Content], Mapping[str, Content], tuple[str, ...]]] = {
    "text": ({"a.txt": "x\n"}, {"a.txt": "y\n"}, ("a.txt",)),
    "binary": ({"a.txt": b"\0\1\2"}, {"a.txt": b"\0\3\4"}, ("a.txt",)),
    "delete": ({"a.txt": "x\n"}, {"a.txt": None}, ("a.txt",)),
    "rename": (
        {"numbers": None, "one": NUMBERS}, {"numbers": None, "two": NUMBERS},
        ("numbers", "one", "two"),
    ),
    "mode": ({"b": ("100755", "a\n")}, {"b": ("120000", "a\n")}, ("b",)),
    "submodule": ({"sub": ("160000", "1" * 40)}, {"sub": ("160000", "2" * 40)}, ("sub",)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kind_and_files_of_a_conflict_are_named(world: World, kind: str) -> None:
    one, two, files = KINDS[kind]
    found = conflicts_of(world, branch(world, 1, one), branch(world, 2, two))
    (pair,) = found.conflicting
    assert (pair.a, pair.b, pair.kind, pair.files) == (1, 2, kind, files)


def test_file_on_one_side_and_directory_on_the_other_are_a_conflict_of_modes(world: World) -> None:
    found = conflicts_of(world, branch(world, 1, {"x": "f\n"}), branch(world, 2, {"x/y": "g\n"}))
    (pair,) = found.conflicting
    assert (pair.kind, pair.files) == ("mode", ("x",))


def test_every_pair_and_the_base_are_compared_and_nothing_changes(world: World) -> None:
    branches = [
        branch(world, 3, {"numbers": NUMBERS.replace("7\n", "seven\n", 1)}),
        branch(world, 5, {"numbers": NUMBERS.replace("7\n", "SEVEN\n", 1), "new": "n\n"}),
        branch(world, 6, {"numbers": NUMBERS.replace("20\n", "twenty\n"), "a.txt": None}),
    ]
    (world.repo / "a.txt").write_text("the user's own edit\n")
    git(world.repo, "stash")
    (world.repo / "not-committed").write_text("x\n")
    before = snapshot_of(world.repo)

    found = conflicts_of(world, *branches)

    assert snapshot_of(world.repo) == before
    assert found.workers == (3, 5, 6)
    assert [(pair.a, pair.b, pair.kind) for pair in found.pairs] == [
        (0, 3, "clean"), (0, 5, "clean"), (0, 6, "clean"),
        (3, 5, "text"), (3, 6, "clean"), (5, 6, "clean"),
    ]  # fmt: skip
    shared = {(pair.a, pair.b): pair.files for pair in found.pairs}
    assert shared[(3, 6)] == ("numbers",), "both changed the file, in different places"
    assert shared[(0, 3)] == ()
    assert [one.files for one in found.changes] == [
        {"numbers": "M"}, {"new": "A", "numbers": "M"}, {"a.txt": "D", "numbers": "M"},
    ]  # fmt: skip


def test_conflict_with_what_the_user_committed_meanwhile_is_found(world: World) -> None:
    one = branch(world, 1, {"a.txt": "x\n"})
    two = branch(world, 2, {"numbers": NUMBERS + "30\n"})
    (world.repo / "a.txt").write_text("mine\n")
    (world.repo / "numbers").write_text("-1\n" + NUMBERS)
    git(world.repo, "commit", "-qam", "meanwhile")
    found = conflicts_of(world, one, two)
    assert [(pair.a, pair.b, pair.kind, pair.files) for pair in found.pairs] == [
        (0, 1, "text", ("a.txt",)), (0, 2, "clean", ("numbers",)), (1, 2, "clean", ()),
    ]  # fmt: skip


def test_pair_that_git_cannot_merge_spoils_no_other(world: World) -> None:
    one, two = branch(world, 1, {"a.txt": "x\n"}), branch(world, 2, {"a.txt": "y\n"})
    tree = git(world.repo, "rev-parse", f"{world.base}^{{tree}}")
    unrelated = git(world.repo, "commit-tree", tree, "-m", "no history in common")
    alone = branch(world, 3, {"c": "c\n"}, unrelated)
    found = conflicts_of(world, one, two, alone)
    assert [(pair.a, pair.b, pair.kind) for pair in found.pairs] == [
        (0, 1, "clean"), (0, 2, "clean"), (0, 3, "unknown"),
        (1, 2, "text"), (1, 3, "unknown"), (2, 3, "unknown"),
    ]  # fmt: skip


def test_git_without_batches_gives_the_same_matrix(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    branches = [
        branch(world, 1, {"a.txt": "x\n"}),
        branch(world, 2, {"a.txt": "y\n"}),
        branch(world, 3, {"sub": ("160000", "1" * 40)}),
        branch(world, 4, {"sub": ("160000", "2" * 40), "12": "a number\n"}),
        branch(world, 5, {"12": "another\n"}),
    ]
    batch = conflicts_of(world, *branches)
    monkeypatch.setattr(merge_tree, "_SINCE_BATCHES", (99,))
    assert conflicts_of(world, *branches) == batch
    assert [pair.kind for pair in batch.conflicting] == ["text", "submodule", "text"]


def test_lists_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "MOST_FILES", 3)
    monkeypatch.setattr(matrix, "MOST_CHANGES", 4)
    one = branch(world, 1, {f"f{number}": "x\n" for number in range(9)})
    two = branch(world, 2, {f"f{number}": "y\n" for number in range(9)})
    found = conflicts_of(world, one, two)
    assert [len(pair.files) for pair in found.pairs] == [0, 0, 3]
    assert [len(change.files) for change in found.changes] == [4, 4]
