"""Tests of the files of sessions, which a hostile worker has written."""

import os
from pathlib import Path

import pytest

from orchestrator.base.text.redact import Redactor
from orchestrator.worker.workspace import session_files
from orchestrator.worker.workspace.session_files import (
    MOST_BYTES,
    UnkeptSessionError,
    keep_session,
    kept_session,
    make_session,
)

ME = (os.getuid(), os.getgid())
PATTERNS = ("chats/{id}.jsonl", "chats/{id}/*.txt", "data.db")


def written(root: Path) -> Path:
    place = make_session(root, ME, "/session", before=None).source
    (place / "chats/one").mkdir(parents=True)
    (place / "chats/one.jsonl").write_text('{"type": "user"}\n')
    return place


def keep(root: Path, redactor: Redactor | None = None) -> list[str]:
    keep_session(root, "one", PATTERNS, redactor or Redactor())
    kept = root / "session.kept"
    return sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())


def test_named_files_alone_are_kept_and_given_to_the_next_attempt(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    place = written(first)
    (place / "chats/one/a.txt").write_text("a")
    for name in ("settings.json", "chats/two.jsonl", "chats/one/run.sh", ".env"):
        (place / name).write_text("x")
    assert keep(first) == ["chats/one.jsonl", "chats/one/a.txt"]
    assert not place.exists()
    assert (first / "session.kept/chats/one.jsonl").stat().st_mode & 0o777 == 0o600
    again = make_session(second, ME, "/session", before=first).source
    assert (again / "chats/one.jsonl").read_text() == '{"type": "user"}\n'
    (again / "chats/one.jsonl").write_text("changed")
    assert (first / "session.kept/chats/one.jsonl").read_text() == '{"type": "user"}\n'


def test_links_fifos_and_directories_are_left_out(tmp_path: Path) -> None:
    place = written(tmp_path)
    (tmp_path / "secret").write_text("of the host")
    (place / "chats/one/link.txt").symlink_to(tmp_path / "secret")
    os.mkfifo(place / "data.db")
    (place / "chats/one/folder.txt").mkdir()
    assert keep(tmp_path) == ["chats/one.jsonl"]


def test_directory_that_is_a_link_is_not_entered(tmp_path: Path) -> None:
    place = written(tmp_path)
    (place / "chats/one").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.txt").write_text("of the host")
    (place / "chats/one").symlink_to(tmp_path / "elsewhere")
    assert keep(tmp_path) == ["chats/one.jsonl"]


def test_too_large_session_is_not_kept(tmp_path: Path) -> None:
    place = written(tmp_path)
    with (place / "data.db").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(UnkeptSessionError, match="MiB"):
        keep(tmp_path)
    assert (kept_session(tmp_path), place.exists()) == (None, False)
    assert not (tmp_path / "session.kept").exists()


def test_number_of_entries_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_files, "_MOST_SEEN", 20)
    place = written(tmp_path)
    for number in range(30):
        (place / f"chats/one/{number}").touch()
    with pytest.raises(UnkeptSessionError, match="entries"):
        keep(tmp_path)


def test_secrets_are_removed_from_text_and_binary_files_with_them_are_not_kept(
    tmp_path: Path,
) -> None:
    redactor = Redactor({"KEY": b"very-secret-value"})
    for name in ("text", "binary"):
        (tmp_path / name).mkdir()
    (written(tmp_path / "text") / "chats/one.jsonl").write_text('{"a": "very-secret-value"}\n')
    keep(tmp_path / "text", redactor)
    kept = (tmp_path / "text/session.kept/chats/one.jsonl").read_text()
    assert kept == '{"a": "[redacted:KEY]"}\n'
    (written(tmp_path / "binary") / "data.db").write_bytes(b"\0very-secret-value\0")
    with pytest.raises(UnkeptSessionError, match="secret"):
        keep(tmp_path / "binary", redactor)
