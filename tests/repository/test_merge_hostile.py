"""Tests of merges of hostile commits, and in hostile repositories."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orchestrator.repository.commits import merge_tree
from orchestrator.repository.commits import task_merge as integration
from orchestrator.repository.commits.task_merge import Tip
from tests.support.merges import NUMBERS, World
from tests.support.repository import git


@pytest.fixture
def evil(tmp_path: Path) -> Callable[[], bool]:
    """Configure a program everywhere; return a function that returns whether the program ran."""
    program, ran = tmp_path / "evil", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    return ran.exists


def _plant(set_: Callable[..., object], program: Path) -> None:
    for key, value in {
        "merge.evil.driver": f"{program} %A %O %B",
        "merge.default": "evil",
        "merge.renormalize": "true",
        "filter.evil.clean": str(program),
        "filter.evil.smudge": str(program),
        "filter.evil.required": "true",
        "diff.evil.textconv": str(program),
        "core.hooksPath": str(program.parent),
    }.items():
        set_(key, value)


@pytest.mark.parametrize("where", ["--local", "--global"])
def test_no_configured_program_runs_in_a_merge(
    world: World, tmp_path: Path, evil: Callable[[], bool], where: str
) -> None:
    _plant(lambda *pair: git(world.repo, "config", where, *pair), tmp_path / "evil")
    rules = "* merge=evil filter=evil diff=evil text eol=crlf\n"
    for name in (world.repo / ".gitattributes", world.repo / ".git" / "info" / "attributes"):
        name.parent.mkdir(exist_ok=True)
        name.write_text(rules)
    one = world.commit(
        {"numbers": NUMBERS.replace("7\n", "seven\n", 1), ".gitattributes": rules, "x": "1"}
    )
    two = world.commit({"numbers": NUMBERS.replace("20\n", "twenty\n"), ".gitattributes": rules})
    three = world.commit({"numbers": NUMBERS.replace("7\n", "SEVEN\n", 1)})

    merged = world.merged(one, two)
    world.refused(one, three)

    assert world.show(merged, "numbers").replace("seven", "7").replace("twenty", "20") == (
        NUMBERS.rstrip("\n")
    )
    assert not evil()


def test_attributes_are_ignored(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Attributes of the user, the current directory or a worker do not change the result."""
    monkeypatch.chdir(world.repo)
    one = world.commit({"numbers": NUMBERS.replace("7\n", "seven\n", 1)})
    two = world.commit({"numbers": NUMBERS.replace("20\n", "twenty\n")})
    rules = "* -merge\n"
    (world.repo / ".gitattributes").write_text(rules)
    (world.repo / "src" / ".gitattributes").write_text(rules)
    attributes = tmp_path / "attributes"
    attributes.write_text(rules)
    git(world.repo, "config", "--global", "core.attributesFile", str(attributes))
    assert "seven" in world.show(world.merged(one, two), "numbers")


def test_replace_refs_are_ignored(world: World) -> None:
    one, two = world.commit({"one": "1\n"}), world.commit({"two": "2\n"})
    git(world.repo, "replace", two, world.commit({"other": "3\n"}))
    merged = world.merged(one, two)
    names = git(world.repo, "--no-replace-objects", "ls-tree", "-r", "--name-only", merged)
    assert {"one", "two"} <= {*names.split()}


@pytest.mark.timeout(150)
def test_merge_is_killed_at_its_timeout(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "MERGE_TIMEOUT", 0.0)
    lines = "".join(f"{number * 7919 % 100_003}\n" for number in range(400_000))
    one = world.commit({"large": lines})
    two = world.commit({"large": lines[::-1]})
    assert "the merge took longer than 0 s" in world.refused(one, two).message


def test_output_about_a_conflict_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_tree, "MOST_SAID", 100)
    one, two = ({f"file-{n}": f"{text}\n" for n in range(9)} for text in "xy")
    conflict = world.refused(world.commit(one), world.commit(two))
    assert "printed more than 100 bytes" in conflict.message


def _smaller(values: Mapping[str, str], large: str, small: str) -> dict[str, str]:
    return {key: small if value == large else value for key, value in values.items()}


def test_memory_for_large_files_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_tree, "_FRUGAL", _smaller(merge_tree._FRUGAL, "256m", "1m"))
    one, two = (world.commit({"large": text * (2 << 20)}) for text in "xy")
    assert "over limit 1048576" in world.refused(one, two).message


def test_rename_detection_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rename detection compares all new with all deleted files, so it is limited."""
    monkeypatch.setattr(merge_tree, "_BOUNDED", _smaller(merge_tree._BOUNDED, "1000", "3"))
    old = {f"old-{number}": f"{number}\n{NUMBERS}" for number in range(4)}
    world.base = world.commit(old)
    moved = world.commit(
        dict.fromkeys(old) | {f"new-{n}": f"{n}\n{NUMBERS}more\n" for n in range(4)}
    )
    changed = world.commit({name: text.replace("7", "seven") for name, text in old.items()})
    named = ", ".join(f"`{name}`" for name in old)
    assert world.refused(moved, changed).message.endswith(f"both changed {named}")


@pytest.mark.extra
def test_hundred_tips_are_merged(world: World) -> None:
    tips = [Tip(f"task-{n}", world.commit({f"dir-{n % 7}/file-{n}": "x\n"})) for n in range(100)]
    started = time.monotonic()
    merged = world.integrate(tips)
    assert time.monotonic() - started < 180
    assert git(world.repo, "ls-tree", "-r", "--name-only", merged).count("file-") == 100
    assert git(world.repo, "log", "-1", "--format=%s", merged) == "architect: merge of 100 tasks"
