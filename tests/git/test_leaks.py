"""A value that a worker committed is named with its path, and the search is bounded."""

import base64
from pathlib import Path

import pytest

from orchestrator import leaks as module
from orchestrator.leaks import leak_notes, leaks
from orchestrator.redact import Redactor
from orchestrator.repository import Repository
from tests.support.repository import git

VALUE = "correct-horse-battery"
REDACTOR = Redactor({"TOKEN": VALUE.encode(), "OTHER": b"something else"})


def commit(repo: Path, message: str = "work", **files: bytes) -> str:
    for name, content in files.items():
        (repo / name).write_bytes(content)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", message)
    return git(repo, "rev-parse", "HEAD")


def found(repo: Path, base: str) -> dict[str, str]:
    tip = git(repo, "rev-parse", "HEAD")
    return leaks(Repository(repo), REDACTOR, base=base, tip=tip)


def test_a_value_is_found_in_any_new_commit(repo: Path) -> None:
    commit(repo, old=VALUE.encode())
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, clean=b"\0\xff nothing\n", empty=b"")
    assert found(repo, base) == {}
    commit(repo, **{"a file": b"x" * 5000 + b"\n" + base64.b64encode(VALUE.encode()) + b"\n"})
    commit(repo, **{"a file": b"taken out again"})
    assert found(repo, base) == {"TOKEN": "a file"}
    assert leak_notes(found(repo, base), "b") == ("`b` holds the value of `TOKEN` in a file",)


def test_a_commit_message_is_looked_at_too(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, f"use {VALUE}", x=b"x")
    assert found(repo, base) == {"TOKEN": "a commit's message"}


def test_a_path_that_holds_it_is_not_quoted(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, **{VALUE: VALUE.encode()})
    assert found(repo, base) == {"TOKEN": "[redacted:TOKEN]"}


def test_small_batches_find_the_same(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = git(repo, "rev-parse", "HEAD")
    files = {f"f{n}": f"{n} {'y' * n}\n".encode() for n in range(30)}
    commit(repo, **files, last=f"a {VALUE} z".encode(), other=b"something else")
    monkeypatch.setattr(module, "_BATCH", 40)
    asked = []
    read = module._read
    monkeypatch.setattr(module, "_read", lambda r, batch: asked.append(batch) or read(r, batch))
    assert found(repo, base) == {"TOKEN": "last", "OTHER": "other"}
    assert len(asked) > 10
    assert all(sum(item.size for item in batch) <= 40 for batch in asked if len(batch) > 1)


def test_all_files_together_are_bounded(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, a=b"a" * 500, b=b"b" * 500, c=VALUE.encode() + b"c" * 500)
    monkeypatch.setattr(module, "MAX_BYTES", 1400)
    assert found(repo, base) == {}


@pytest.mark.parametrize(("limit", "value"), [("MAX_OBJECT", 20), ("MAX_BYTES", 20)])
def test_what_is_too_large_is_passed_over(
    repo: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, big=VALUE.encode())
    monkeypatch.setattr(module, limit, value)
    assert found(repo, base) == {}
    monkeypatch.setattr(module, limit, 10_000)
    assert found(repo, base) == {"TOKEN": "big"}


def test_no_more_objects_than_allowed_are_looked_at(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, big=VALUE.encode())
    monkeypatch.setattr(module, "MAX_OBJECTS", 1)
    assert found(repo, base) == {}
