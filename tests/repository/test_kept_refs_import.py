"""Tests of the import of commits outside of a worker's branch."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.base.text.redact import Redactor
from orchestrator.repository.incoming import kept_refs
from orchestrator.repository.incoming.kept_refs import Kept, import_kept, kept_prefix
from orchestrator.repository.incoming.quarantine import HandedOver, Origin
from orchestrator.repository.repository import KEPT, Repository
from orchestrator.worker.workspace.private_git import base_objects
from tests.support.repository import git


class Handover:
    """A repository, the worker's clone, and a harvest with commits to keep."""

    def __init__(self, repo: Path, tmp_path: Path) -> None:
        self.repo = repo
        self.base = git(repo, "rev-parse", "HEAD")
        objects = tmp_path / "objects"
        shallow = base_objects(Repository(repo), self.base, objects, history="full")
        self.origin = Origin(base=self.base, objects=objects, shallow=shallow)
        self.out = tmp_path / "out"
        self.out.mkdir()
        self.clone = tmp_path / "clone"
        git(tmp_path, "clone", "-q", str(repo), str(self.clone))
        git(self.clone, "config", "user.name", "w")
        git(self.clone, "config", "user.email", "w@example.org")

    def commit(self, name: str, text: str = "text\n") -> str:
        """Commit a file on top of the base."""
        git(self.clone, "checkout", "-q", "--detach", self.base)
        (self.clone / name).write_text(text)
        git(self.clone, "add", "-A")
        git(self.clone, "commit", "-qm", name)
        return git(self.clone, "rev-parse", "HEAD")

    def hand_over(self, packed: list[str], listed: dict[str, str]) -> None:
        """Write a pack of some commits, and a list."""
        tree = git(self.clone, "rev-parse", f"{self.base}^{{tree}}")
        parents = [word for commit in (self.base, *packed) for word in ("-p", commit)]
        bundle = git(self.clone, "commit-tree", tree, *parents, "-m", "all")
        with (self.out / "kept.pack").open("wb") as file:
            subprocess.run(
                ["git", "pack-objects", "-q", "--stdout", "--revs", "--thin"], cwd=self.clone,
                input=f"{bundle}\n^{self.base}\n".encode(), stdout=file, check=True,
            )  # fmt: skip
        rows = list(listed.items())
        (self.out / "kept").write_text(json.dumps({"bundle": bundle, "refs": rows}))

    def bring_in(self) -> Kept:
        return import_kept(
            HandedOver(
                repository=Repository(self.repo),
                out=self.out,
                quarantine=self.out.with_name("quarantine"),
                origin=self.origin,
            ),
            prefix=kept_prefix("run", 1, attempt=1),
            redactor=Redactor({"TOKEN": b"correct-horse-battery"}),
        )

    def refs(self) -> dict[str, str]:
        form = "--format=%(refname) %(objectname)"
        rows = git(self.repo, "for-each-ref", form, KEPT).splitlines()
        return dict(row.removeprefix(f"{KEPT}run/1/").split(" ") for row in rows)


@pytest.fixture
def handover(repo: Path, tmp_path: Path) -> Handover:
    return Handover(repo, tmp_path)


def test_new_refs_replace_those_of_a_process_that_died(handover: Handover) -> None:
    one, two = handover.commit("one"), handover.commit("two")
    handover.hand_over([one], {"heads/one": one})
    handover.bring_in()
    handover.hand_over([one, two], {"heads/one/deeper": one, "heads/two": two})
    kept = handover.bring_in()
    assert handover.refs() == {"heads/one/deeper": one, "heads/two": two}
    assert kept.refs == tuple(f"{KEPT}run/1/{name}" for name in handover.refs())


def test_death_between_old_and_new_refs_loses_nothing(
    handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = handover.commit("one"), handover.commit("two")
    handover.hand_over([one], {"heads/one": one})
    handover.bring_in()
    handover.hand_over([one, two], {"heads/one/deeper": one, "heads/two": two})

    def drop_and_die(*arguments: object) -> None:
        drop(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    drop = kept_refs._drop_old
    with monkeypatch.context() as patch:
        patch.setattr(kept_refs, "_drop_old", drop_and_die)
        with pytest.raises(KeyboardInterrupt):
            handover.bring_in()
    assert handover.refs() == {}
    handover.bring_in()
    assert handover.refs() == {"heads/one/deeper": one, "heads/two": two}


def test_leftover_quarantine_is_replaced(handover: Handover) -> None:
    commit = handover.commit("new")
    handover.hand_over([commit], {"heads/side": commit})
    left = handover.out.with_name("quarantine") / "objects" / "info"
    left.mkdir(parents=True)
    handover.bring_in()
    assert handover.refs() == {"heads/side": commit}


def test_commit_that_is_not_in_the_pack_is_refused(handover: Handover) -> None:
    git(handover.repo, "commit", "-q", "--allow-empty", "-m", "private")
    private, one = git(handover.repo, "rev-parse", "HEAD"), handover.commit("one")
    handover.hand_over([one], {"heads/one": one, "heads/private": private})
    kept = handover.bring_in()
    assert handover.refs() == {"heads/one": one}
    assert "`heads/private` was refused" in " ".join(kept.notes)


def test_commit_larger_than_the_room_is_refused(handover: Handover) -> None:
    small, large = handover.commit("small"), handover.commit("large", "x" * 5000)
    handover.origin = replace(handover.origin, room=4000)
    handover.hand_over([small, large], {"heads/small": small, "heads/large": large})
    kept = handover.bring_in()
    assert handover.refs() == {"heads/small": small}
    assert (
        "the commit of `heads/large` was refused (the changed files have 5000 bytes"
        in kept.notes[0]
    )


@pytest.mark.parametrize(
    "listed",
    [
        "no JSON", "[]", '{"bundle": 1, "refs": []}', "[" * 100_000,
        '{"bundle": "%s", "refs": [["heads/x", "--all"]]}',
        '{"bundle": "%s", "refs": [["heads/x", "HEAD"]]}',
        '{"bundle": "%s", "refs": [["heads/x"]]}', '{"bundle": "%s", "refs": 7}',
    ],
)  # fmt: skip
def test_malformed_list_keeps_nothing(handover: Handover, listed: str) -> None:
    one = handover.commit("one")
    handover.hand_over([one], {})
    (handover.out / "kept").write_text(listed.replace("%s", one))
    assert handover.bring_in().refused
    assert handover.refs() == {}


def test_list_that_is_a_link_or_fifo_is_not_read(handover: Handover, tmp_path: Path) -> None:
    handover.hand_over([], {})
    (handover.out / "kept").rename(tmp_path / "elsewhere")
    (handover.out / "kept").symlink_to(tmp_path / "elsewhere")
    assert "the worker's work was not handed over: the file `kept` is missing" in (
        handover.bring_in().refused or ""
    )
    (handover.out / "kept").unlink()
    os.mkfifo(handover.out / "kept")
    assert "is not a regular file" in (handover.bring_in().refused or "")


def test_unsafe_names_are_replaced(handover: Handover) -> None:
    one = handover.commit("one")
    names = ["../../heads/main", "heads/\u202e\x1b]0;x", "heads/A", "heads/a", "heads/a/b"]
    handover.hand_over([one], dict.fromkeys(names, one))
    handover.bring_in()
    found = ["_/_/heads/main", "heads/A", "heads/___0_x", "heads_a-2", "heads_a_b-2"]
    assert sorted(handover.refs()) == found
    assert git(handover.repo, "rev-parse", "main") == handover.base


def test_names_with_secrets_are_numbered(handover: Handover) -> None:
    one = handover.commit("one")
    secret = "correct-horse-battery"
    names = [f"heads/{secret}", "heads/one", f"tags/{'x' * 50}{secret}", "\ud800", "renamed/1"]
    handover.hand_over([one], dict.fromkeys(names, one))
    kept = handover.bring_in()
    assert sorted(handover.refs()) == ["_", "heads/one", "renamed/1", "renamed/2", "renamed_1-2"]
    assert kept.refused is None
    assert kept.notes == (
        "names of the worker's refs contained the value of `TOKEN`; "
        "the refs are kept as `renamed/1` and so on",
    )


def test_commits_not_checked_in_time_are_reported(
    handover: Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_refs, "SEARCH_TIME", -1.0)
    one = handover.commit("one")
    handover.hand_over([one], {"heads/one": one})
    kept = handover.bring_in()
    assert kept.refs == ()
    assert "no time was left" in kept.notes[0]
