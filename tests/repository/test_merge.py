"""Tests that the commits of several tasks are merged completely or not at all."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.repository.commits import task_merge as integration
from tests.support.errors import raises
from tests.support.merges import NUMBERS, WHEN, Content, World
from tests.support.repository import fingerprint, git


def test_merge_of_nothing_is_the_base(world: World) -> None:
    assert world.merged() == world.base
    assert world.merged(world.base, world.base) == world.base


def test_tip_that_contains_all_others_is_used_unchanged(world: World) -> None:
    first = world.commit({"one": "1\n"})
    second = world.commit({"two": "2\n"}, first)
    before = world.objects()
    assert world.merged(first, second, world.base) == second
    assert world.merged(second, second) == second
    assert world.objects() == before


def test_merge_does_not_change_the_users_files_or_refs(world: World) -> None:
    one, two = world.commit({"one": "1\n"}), world.commit({"two": "2\n"})
    (world.repo / "one").write_text("the user's own\n")
    git(world.repo, "add", "one")
    (world.repo / "a.txt").write_text("not committed\n")
    before = fingerprint(world.repo)

    merged = world.merged(one, two)

    assert git(world.repo, "log", "-1", "--format=%P|%s|%an <%ae>|%cn|%at|%ct", merged) == (
        f"{one} {two}|architect: merge of `a` and `b`|user <user@example.org>|user|"
        f"{int(WHEN.timestamp())}|{int(WHEN.timestamp())}"
    )
    names = git(world.repo, "ls-tree", "-r", "--name-only", merged).split()
    assert names == ["a.txt", "numbers", "one", "src/app.py", "two"]
    assert fingerprint(world.repo) == before
    assert git(world.repo, "fsck", "--strict", "--no-dangling") == ""
    assert not (world.scratch / "merge").exists()


def test_equal_merges_give_equal_commits(world: World) -> None:
    one, two = world.commit({"one": "1\n"}), world.commit({"two": "2\n"})
    (world.scratch / "merge" / "git" / "refs" / "heads").mkdir(
        parents=True
    )  # left by a process that died
    first = world.merged(one, two)
    time.sleep(1.1)  # the next commit would have another time
    assert world.merged(one, two) == first


def test_diamond_of_dependencies_is_merged(world: World) -> None:
    top = world.commit({"top": "t\n"})
    left, right = world.commit({"left": "l\n"}, top), world.commit({"right": "r\n"}, top)
    merged = world.merged(top, left, right)
    assert git(world.repo, "log", "-1", "--format=%P|%s", merged) == (
        f"{left} {right}|architect: merge of `b` and `c`"
    )
    below = world.commit({"below": "b\n"}, merged)
    assert world.merged(left, right, below) == below


def test_distant_changes_of_one_file_are_merged(world: World) -> None:
    tips = [
        world.commit({"numbers": NUMBERS.replace(f"\n{n}\n", f"\nby {n}\n"), f"new-{n}": "x"})
        for n in (2, 8, 14, 20, 26)
    ]
    merged = world.merged(*tips)
    assert [line for line in world.show(merged, "numbers").split("\n") if "by" in line] == [
        "by 2", "by 8", "by 14", "by 20", "by 26",
    ]  # fmt: skip
    assert git(world.repo, "log", "-1", "--format=%P", merged).split() == tips
    said = git(world.repo, "log", "-1", "--format=%B", merged)
    assert said.startswith("architect: merge of `a`, `b`, `c`, `d` and `e`")
    assert git(world.repo, "rev-list", "--count", f"{world.base}..{merged}") == "6"


def test_conflict_names_tasks_and_files(world: World) -> None:
    one = world.commit({"one": "1\n"})
    two = world.commit({"numbers": NUMBERS.replace("7\n", "seven\n")})
    three = world.commit({"three": "3\n"})
    four = world.commit({"numbers": NUMBERS.replace("7\n", "SEVEN\n"), "four": "4\n"})
    conflict = world.refused(one, two, three, four)
    assert conflict.message == ("`d` and the work of `b` cannot be merged: both changed `numbers`")


def test_conflict_names_the_last_task_that_changed_each_file(world: World) -> None:
    one = world.commit({"x": "1\n"})
    two = world.commit({"y": "2\n"})
    three = world.commit({"x": "3\n", "y": "3\n"})
    conflict = world.refused(one, two, three)
    assert conflict.message == (
        "`c` and the work of `a`, `b` cannot be merged: both changed `x`, `y`"
    )


CONFLICTS: Mapping[str, tuple[Mapping[str, Content], Mapping[str, Content], tuple[str, ...]]] = {
    "both change": ({"a.txt": "x\n"}, {"a.txt": "y\n"}, ("a.txt",)),
    "both add": ({"new": "x\n"}, {"new": "y\n"}, ("new",)),
    "changed and deleted": ({"a.txt": "x\n"}, {"a.txt": None}, ("a.txt",)),
    "renamed to two names": (
        {"numbers": None, "one": NUMBERS}, {"numbers": None, "two": NUMBERS},
        ("numbers", "one", "two"),
    ),
    "binary": ({"a.txt": b"\0\1\2"}, {"a.txt": b"\0\3\4"}, ("a.txt",)),
    "file and directory": ({"x": "file\n"}, {"x/y": "file\n"}, ("x",)),
    "link and directory": ({"x": ("120000", "/etc")}, {"x/passwd": "file\n"}, ("x",)),
    "link and file": ({"x": ("120000", "/etc")}, {"x": "file\n"}, ("x",)),
    "two links": ({"x": ("120000", "/etc")}, {"x": ("120000", "/usr")}, ("x",)),
    "two modes": ({"b": ("100755", "a\n")}, {"b": ("120000", "a\n")}, ("b",)),
    "two submodules": ({"sub": ("160000", "1" * 40)}, {"sub": ("160000", "2" * 40)}, ("sub",)),
    "submodule and file": ({"sub": ("160000", "1" * 40)}, {"sub": "file\n"}, ("sub",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflicting_changes_are_refused(world: World, name: str) -> None:
    one, two, files = CONFLICTS[name]
    for tips in ((one, two), (two, one)):
        conflict = world.refused(*(world.commit(tip) for tip in tips))
        named = ", ".join(f"`{file}`" for file in files)
        assert conflict.message == (
            f"`b` and the work of `a` cannot be merged: both changed {named}"
        )


def test_rename_and_change_are_merged(world: World) -> None:
    one = world.commit({"numbers": None, "digits": NUMBERS})
    two = world.commit({"numbers": NUMBERS.replace("7\n", "seven\n", 1)})
    assert "seven" in world.show(world.merged(one, two), "digits")


def test_mode_and_content_changes_are_merged(world: World) -> None:
    one, two = world.commit({"a.txt": ("100755", "a\n")}), world.commit({"a.txt": "b\n"})
    merged = world.merged(one, two)
    assert git(world.repo, "ls-tree", merged, "a.txt").startswith("100755")
    assert world.show(merged, "a.txt") == "b"


def test_listed_files_are_bounded_and_made_harmless(world: World) -> None:
    names = ["\x1b[2J", "two\nlines", *(f"file-{number}" for number in range(40))]
    one, two = (dict.fromkeys(names, text) for text in ("x\n", "y\n"))
    conflict = world.refused(world.commit(one), world.commit(two))
    named = conflict.message.partition("both changed ")[2]
    assert named.count("`") == 2 * integration.MOST_FILES
    assert "`\ufffd[2J`" in named
    assert conflict.message.isprintable()
    assert conflict.message.endswith(" and 22 more")


HARMLESS_APART: Mapping[str, tuple[Mapping[str, Content], Mapping[str, Content], str]] = {
    "a git directory": (
        {"x/HEAD": "ref: refs/heads/main\n"}, {"x/objects/y": "y"}, "contains a git dir"),
    "a git directory, without regard to case": (
        {"x/head": "ref: refs/heads/main\n"}, {"x/Refs/y": "y"}, "contains a git dir"),
    "directories whose names differ in case": (
        {"docs/x": "x"}, {"Docs/y": "y"}, "`Docs` and `docs`, which differ only in letter case"),
    "submodules": (
        {".gitmodules": '[submodule "a"]\n\tpath = x\n' + "# \n" * 9, "one": "1"},
        {"sub": ("160000", "1" * 40)}, "a commit adds a submodule"),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS_APART)
def test_merge_that_breaks_a_rule_is_refused(world: World, name: str) -> None:
    one, two, said = HARMLESS_APART[name]
    conflict = world.refused(world.commit(one), world.commit(two))
    assert conflict.message.startswith("`b` and the work of `a` cannot be merged: ")
    assert said in conflict.message


def test_case_conflict_within_one_task_is_accepted(world: World) -> None:
    one, two = world.commit({"src/App.py": "x"}), world.commit({"src/new": "y"})
    merged = world.merged(one, two)
    assert {"src/App.py", "src/app.py", "src/new"} <= {
        *git(world.repo, "ls-tree", "-r", "--name-only", merged).split()
    }


def test_harmful_merged_gitmodules_is_refused(world: World) -> None:
    """Git forbids some contents of `.gitmodules`; neither side alone has such a content."""
    start, other, far = '[submodule "sub"]\n\tpath = sub\n', "[other]\n", "#\n" * 9
    first = world.commit({".gitmodules": f"{start}{far}{other}{far}"})
    one = world.commit({".gitmodules": f"{start}{far}{far}"}, first)
    two = world.commit({".gitmodules": f"{start}{far}{other}{far}\turl = -u./x\n"}, first)
    assert "gitmodulesUrl" in world.refused(one, two).message


def test_tip_without_the_base_is_refused(world: World) -> None:
    tree = git(world.repo, "rev-parse", f"{world.base}^{{tree}}")
    alone = git(world.repo, "commit-tree", tree, "-m", "alone")
    with raises("history.unrelated", "`b`"):
        world.merged(world.commit({"one": "1\n"}), alone)


def test_merge_in_a_shallow_clone(world: World, tmp_path: Path) -> None:
    path = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{world.repo}", str(path))
    git(path, "config", "user.name", "user")
    git(path, "config", "user.email", "user@example.org")
    clone = World(path, tmp_path)
    merged = clone.merged(clone.commit({"one": "1\n"}), clone.commit({"two": "2\n"}))
    assert git(path, "rev-list", "--count", merged) == "4"
    assert git(path, "fsck", "--strict", "--no-dangling") == ""


def test_old_git_is_an_error(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old" / "git"
    old.parent.mkdir()
    old.write_text('#!/bin/sh\ncase "$*" in\n*version) echo git version 2.37.9;;\n')
    path = os.environ["PATH"]
    with old.open("a") as file:
        file.write(f'*) PATH="{path}" exec git "$@";;\nesac\n')
    old.chmod(0o755)
    one, two = world.commit({"one": "1\n"}), world.commit({"two": "2\n"})
    monkeypatch.setenv("PATH", f"{old.parent}:{path}")
    assert world.merged(one, one) == one
    with raises("git.too-old", "2.37.9") as caught:
        world.merged(one, two)
    assert "git 2.38 or newer" in str(caught.value.hint)
