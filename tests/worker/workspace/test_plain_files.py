"""Tests of the files that the host reads for a commit without a container."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.repository.commits.plain_commit import PlainFile
from orchestrator.worker.workspace import plain_files
from orchestrator.worker.workspace.plain_files import read_plain_files


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Path, Path]:
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    (lower / "src").mkdir(parents=True)
    (lower / "src" / "old.py").write_text("old\n")
    upper.mkdir()
    return upper, lower


def test_ordinary_files_are_read(layers: tuple[Path, Path]) -> None:
    upper, lower = layers
    (upper / "new" / "deep").mkdir(parents=True)
    (upper / "new" / "deep" / "a-1.txt").write_bytes(b"a\0b")
    (upper / "run").write_text("#!/bin/sh\n")
    (upper / "run").chmod(0o750)
    found = read_plain_files(upper, lower)
    assert found is not None
    assert found.files == (
        PlainFile("new/deep/a-1.txt", False, b"a\0b"),
        PlainFile("run", True, b"#!/bin/sh\n"),
    )
    assert found.folders == ("new", "new/deep")


UNUSUAL: dict[str, Callable[[Path], object]] = {
    "a link": lambda upper: (upper / "link").symlink_to("/etc/passwd"),
    "a FIFO": lambda upper: os.mkfifo(upper / "fifo"),
    "two names of one file": lambda upper: (
        (upper / "one").write_text("x"),
        os.link(upper / "one", upper / "two"),
    ),
    "a file of git": lambda upper: (upper / ".gitattributes").write_text("* -text"),
    "a nested repository": lambda upper: (upper / "sub" / ".git").mkdir(parents=True),
    "a name that begins with a dot": lambda upper: (upper / ".env").write_text("x"),
    "a name with a space": lambda upper: (upper / "a b").write_text("x"),
    "a name that is not ASCII": lambda upper: (upper / "\u200cgit").write_text("x"),
    "a name that is not UTF-8": lambda upper: Path(os.fsdecode(bytes(upper) + b"/\xff")).touch(),
    "a name with a line break": lambda upper: (upper / "a\nb").write_text("x"),
    "a disguised git directory": lambda upper: (
        (upper / "sub").mkdir(),
        (upper / "sub" / "Head").write_text("ref: x"),
    ),
    "many files": lambda upper: [
        (upper / str(number)).touch() for number in range(plain_files.MOST_ENTRIES + 1)
    ],
    "a large file": lambda upper: (upper / "large").write_bytes(bytes(plain_files.MOST_BYTES + 1)),
    "large files": lambda upper: [
        (upper / name).write_bytes(bytes(plain_files.MOST_BYTES // 2 + 1)) for name in "ab"
    ],
    "a sparse file": lambda upper: os.truncate(_touched(upper / "sparse"), 1 << 40),
    "a deep directory": lambda upper: (upper / "/".join("d" * 30)).mkdir(parents=True),
}


def _touched(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize("what", UNUSUAL)
def test_other_files_are_left_to_the_container(what: str, layers: tuple[Path, Path]) -> None:
    upper, lower = layers
    (upper / "ordinary").write_text("x")
    UNUSUAL[what](upper)
    assert read_plain_files(upper, lower) is None


@pytest.mark.parametrize("mark", ["opaque", "redirect", "metacopy", "whiteout", "new"])
def test_marked_entry_over_an_existing_path_is_left_to_the_container(
    mark: str, layers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    upper, lower = layers
    (upper / "src").mkdir()
    (upper / "src" / "new.py").write_text("new\n")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "listxattr", lambda _: ["trusted.overlay.origin", "security.selinux"])
    found = read_plain_files(upper, lower)
    assert found is not None
    assert [file.path for file in found.files] == ["src/new.py"]
    monkeypatch.setattr(os, "listxattr", lambda _: [f"trusted.overlay.{mark}"])
    assert read_plain_files(upper, lower) is None


@pytest.mark.parametrize("mark", ["redirect", "metacopy"])
def test_moved_entry_is_left_to_the_container(
    mark: str, layers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    upper, lower = layers
    (upper / "moved").mkdir()
    (upper / "src").write_text("in place of the directory\n")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    marks = {(upper / "moved").stat().st_ino: [f"trusted.overlay.{mark}"]}
    monkeypatch.setattr(os, "listxattr", lambda fd: marks.get(os.fstat(fd).st_ino, []))
    assert read_plain_files(upper, lower) is None
    marks.clear()
    assert read_plain_files(upper, lower) is not None


def test_new_directory_is_ordinary_though_it_is_marked_to_hide_others(
    layers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    upper, lower = layers
    (upper / "new").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "listxattr", lambda _: ["trusted.overlay.opaque"])
    assert read_plain_files(upper, lower) is not None
    (upper / "new").rename(upper / "src")
    assert read_plain_files(upper, lower) is None


def test_entry_over_an_existing_path_is_left_to_the_container_if_marks_are_hidden(
    layers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    upper, lower = layers
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    (upper / "new.py").write_text("new\n")
    assert read_plain_files(upper, lower) is not None
    (upper / "src").mkdir()
    (upper / "src" / "old.py").write_text("new\n")
    assert read_plain_files(upper, lower) is None
