"""Tests of merging branches of hostile workers into a checkout of the user."""

from pathlib import Path

import pytest

from orchestrator.repository.repository import Repository
from orchestrator.review.landing.land import undo
from tests.support.landing import branch, merge
from tests.support.merges import NUMBERS, World
from tests.support.repository import git

RULES = "* merge=evil filter=evil diff=evil text eol=crlf\n"


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Return a program that leaves a file `ran` beside it."""
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    program.chmod(0o755)
    return program


@pytest.mark.variants("merge---local", "rebase---global", "apply---local")
@pytest.mark.parametrize("where", ["--local", "--global"])
@pytest.mark.parametrize("form", ["merge", "squash", "rebase", "apply"])
def test_no_program_runs(world: World, evil: Path, where: str, form: str) -> None:
    hooks = evil.parent / "hooks"
    hooks.mkdir()
    for hook in (
        "post-checkout", "post-merge", "pre-merge-commit", "reference-transaction", "post-rewrite",
        "pre-commit", "post-commit", "commit-msg", "post-index-change", "prepare-commit-msg",
    ):  # fmt: skip
        (hooks / hook).symlink_to(evil)
    for key, value in {
        "merge.evil.driver": f"{evil} %A %O %B", "merge.default": "evil",
        "filter.evil.clean": str(evil), "filter.evil.smudge": str(evil),
        "filter.evil.process": str(evil), "filter.evil.required": "true",
        "diff.evil.textconv": str(evil), "diff.evil.command": str(evil), "diff.external": str(evil),
        "core.hooksPath": str(hooks), "core.fsmonitor": str(evil), "gpg.program": str(evil),
        "commit.gpgSign": "true", "core.pager": str(evil), "core.editor": str(evil),
    }.items():  # fmt: skip
        git(world.repo, "config", where, key, value)
    one = branch(world, 1, {".gitattributes": RULES, "numbers": NUMBERS.replace("7\n", "s\n", 1),
                            ".githooks/post-checkout": ("100755", evil.read_text())})  # fmt: skip
    two = branch(world, 2, {".gitattributes": RULES, "numbers": NUMBERS + "30\n"})
    three = branch(world, 3, {"numbers": NUMBERS.replace("7\n", "conflict\n", 1)})
    ran = evil.parent / "ran"
    assert ran.exists(), "the test's own git ran the program"
    ran.unlink()
    refused = merge(world, one, two, form=form, dry_run=True)
    assert [left.reason for left in refused.left] == ["unfiltered", "unfiltered"]
    merged = merge(world, one, two, three, form=form, on_conflict="skip", unfiltered=True)
    assert (merged.landed, [left.worker_id for left in merged.left]) == ((1, 2), [3])
    undo(Repository(world.repo), into=None, run_id=None)
    assert not ran.exists()


def test_links_of_a_worker_lead_no_write_out_of_the_checkout(world: World, tmp_path: Path) -> None:
    """One branch adds a link, the other a file behind it: a conflict, and nothing is written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    one = branch(world, 1, {"dir": ("120000", str(outside))})
    two = branch(world, 2, {"dir/file": "x\n"})
    merged = merge(world, one, two, on_conflict="skip")
    assert merged.landed == (1,)
    assert (world.repo / "dir").is_symlink()
    later = branch(world, 4, {"dir": None, "dir/file": "y\n"}, git(world.repo, "rev-parse", "main"))
    merge(world, later)
    assert (world.repo / "dir" / "file").read_text() == "y\n"
    assert list(outside.iterdir()) == []


def test_hostile_messages_and_authors_stay_data(world: World) -> None:
    """A rebase keeps a worker's message byte for byte, and adds no header of it to the commit."""
    tree = git(world.repo, "rev-parse", world.commit({"x": "1\n"}) + "^{tree}")
    raw = (
        f"tree {tree}\nparent {world.base}\nauthor E <e@example.org> 1 +0000\n"
        "committer E <e@example.org> 1 +0000\ngpgsig -----BEGIN-----\n author: forged\n -----\n"
        "\nauthor Other <o@example.org> 2 +0000\n\n\x1b[2J tree 1234\nOrchestrator-Run: forged\n"
    )
    path = world.scratch / "raw"
    path.write_text(raw)
    one = git(world.repo, "hash-object", "-t", "commit", "-w", str(path))
    (world.repo / "numbers").write_text("meanwhile\n")
    git(world.repo, "commit", "-qam", "meanwhile")
    merge(world, branch(world, 1, {}, one), form="rebase")
    data = git(world.repo, "cat-file", "commit", "main")
    header, _, message = data.partition("\n\n")
    assert [line.split(" ")[0] for line in header.splitlines()] == [
        "tree", "parent", "author", "committer",
    ]  # fmt: skip
    assert "author E <e@example.org> 1 +0000" in header
    assert "committer user <user@example.org>" in header
    assert message == raw.partition("\n\n")[2].rstrip("\n")
    assert git(world.repo, "fsck", "--strict", "--no-dangling") == ""


def test_hostile_paths_are_made_harmless_in_the_report(world: World) -> None:
    names = ("\x1b[2J", "two\nlines")
    one = branch(world, 1, dict.fromkeys(names, "x\n"))
    two = branch(world, 2, dict.fromkeys(names, "y\n"))
    merged = merge(world, one, two, on_conflict="skip")
    assert set(merged.left[0].files) == set(names), "JSON has the paths as they are"
    assert merged.left[0].message == "conflicts with worker 1"
