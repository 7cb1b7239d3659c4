"""Tests of the bounded search for secret values in a worker's commits."""

import base64
import tracemalloc
from pathlib import Path

import pytest

from orchestrator.base.text.redact import Redactor
from orchestrator.repository.incoming import secret_scan as module
from orchestrator.repository.incoming.secret_scan import Search, leak_notes, leaks
from orchestrator.repository.repository import Repository
from tests.support.repository import git

VALUE = "correct-horse-battery"
REDACTOR = Redactor({"TOKEN": VALUE.encode(), "OTHER": b"something else"})


def commit(repo: Path, message: str = "work", **files: bytes) -> str:
    for name, content in files.items():
        (repo / name).write_bytes(content)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", message)
    return git(repo, "rev-parse", "HEAD")


def search(repo: Path, base: str) -> Search:
    tip = git(repo, "rev-parse", "HEAD")
    return leaks(Repository(repo), REDACTOR, base=base, tips=[tip])


def found(repo: Path, base: str) -> dict[str, str]:
    """Return the places named for each value; check that the search was complete."""
    searched = search(repo, base)
    assert searched.missed is None
    return {name: ", ".join(places) for name, places in searched.found.items()}


def test_a_value_is_found_in_any_new_commit(repo: Path) -> None:
    commit(repo, old=VALUE.encode())
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, clean=b"\0\xff nothing\n", empty=b"")
    assert found(repo, base) == {}
    commit(repo, **{"a file": b"x" * 5000 + b"\n" + base64.b64encode(VALUE.encode()) + b"\n"})
    commit(repo, **{"a file": b"taken out again"})
    assert found(repo, base) == {"TOKEN": "a file"}
    assert leak_notes(search(repo, base), "b") == ("`b` contains the value of `TOKEN` in a file",)


def test_commit_messages_are_searched(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, f"use {VALUE}", x=b"x")
    assert found(repo, base) == {"TOKEN": "a commit's message"}


def test_number_of_named_places_is_bounded(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, f"use {VALUE}", a=VALUE.encode(), b=b"x " + VALUE.encode())
    commit(repo, f"use {VALUE} again", c=b"nothing")
    (note,) = leak_notes(search(repo, base), "w")
    assert note == "`w` contains the value of `TOKEN` in a commit's message, a, b"
    commit(repo, **{f"d{number}": f"{number} {VALUE}".encode() for number in range(9)})
    (note,) = leak_notes(search(repo, base), "w")
    assert note.endswith("a commit's message, a, b, d0, d1 and further places")
    assert len(search(repo, base).found["TOKEN"]) == module.MOST_PLACES + 1


def test_path_with_a_secret_is_not_quoted(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, **{VALUE: VALUE.encode()})
    places = found(repo, base)["TOKEN"].split(", ")
    assert places == ["the name of a file in the top directory", "[redacted:TOKEN]"]


@pytest.mark.parametrize("name", [VALUE, f"a/b-{VALUE}.txt", f"{VALUE}/x/y"])
def test_file_names_are_searched(repo: Path, name: str) -> None:
    base = git(repo, "rev-parse", "HEAD")
    (repo / name).parent.mkdir(parents=True, exist_ok=True)
    (repo / name).write_text("nothing\n")
    commit(repo)
    assert found(repo, base).keys() == {"TOKEN"}
    assert VALUE not in found(repo, base)["TOKEN"]


def test_secret_in_the_new_name_of_a_file_is_found(repo: Path) -> None:
    """The content is not new, so git lists no path for the file."""
    base = git(repo, "rev-parse", "HEAD")
    git(repo, "mv", "a.txt", f"{VALUE}.txt")
    commit(repo)
    assert found(repo, base) == {"TOKEN": "the name of a file in the top directory"}


def test_kept_refs_are_searched(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, kept=b"something else")
    git(repo, "update-ref", "refs/orchestrator/kept/x", "HEAD")
    git(repo, "reset", "-q", "--hard", base)
    refs = ("refs/orchestrator/kept/x",)
    searched = leaks(Repository(repo), REDACTOR, base=base, tips=(base, *refs))
    assert searched.found == {"OTHER": ["kept"]}


@pytest.mark.parametrize("before", [0, 1, 990, 1000, 1015, 1024])
def test_value_across_two_pieces_is_found(
    repo: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(module, "_PIECE", 1024)
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, big=b"x" * before + b" " + VALUE.encode() + b"\n" + b"y\n" * 1000)
    assert found(repo, base) == {"TOKEN": "big"}


def test_small_files_are_searched_first(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, a=b"a" * 5000, b=VALUE.encode())
    monkeypatch.setattr(module, "SMALL", 500)
    monkeypatch.setattr(module, "MAX_BYTES", 2000)
    searched = search(repo, base)
    assert searched.found == {"TOKEN": ["b"]}
    assert searched.missed is not None
    assert searched.missed.endswith("were searched for secrets (objects left: 1)")


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_OBJECTS", 1), ("MAX_BYTES", 20), ("MAX_TIME", -1.0)]
)
def test_incomplete_search_causes_a_note(
    repo: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, big=VALUE.encode())
    monkeypatch.setattr(module, limit, value)
    (note,) = leak_notes(search(repo, base), "b")
    assert "searched for secrets" in note


def test_search_uses_little_memory(repo: Path) -> None:
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, big=b"x\n" * 20_000_000)
    tracemalloc.start()
    assert found(repo, base) == {}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
