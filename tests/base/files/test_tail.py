"""Tests of reading files that grow, are truncated, are replaced or do not exist yet."""

from pathlib import Path

import pytest

from orchestrator.base.files.tail import LineTail, Tail, end_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def tail(path: Path) -> Tail:
    tail = Tail(path)
    yield tail
    tail.close()


@pytest.fixture
def lines(path: Path) -> LineTail:
    lines = LineTail(path, longest=10)
    yield lines
    lines.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_new_bytes_are_returned(path: Path, tail: Tail) -> None:
    assert tail.read() == b""
    append(path, b"one")
    assert (tail.read(), tail.read()) == (b"one", b"")
    append(path, b"\xff\n")
    assert (tail.read(), tail.read()) == (b"\xff\n", b"")


def test_read_is_bounded(path: Path, tail: Tail) -> None:
    append(path, b"x" * 3_000_000)
    sizes = [len(tail.read()) for _ in range(4)]
    assert sum(sizes) == 3_000_000
    assert max(sizes) < 1_100_000


def test_truncated_file_is_read_from_its_start(path: Path, tail: Tail) -> None:
    append(path, b"long enough")
    tail.read()
    path.write_bytes(b"new")
    assert (tail.read(), tail.read()) == (b"new", b"")


def test_replaced_file_is_read_to_its_end_first(path: Path, tail: Tail) -> None:
    append(path, b"one")
    tail.read()
    append(path, b" two")
    path.rename(path.with_name("old"))
    assert (tail.read(), tail.read()) == (b" two", b"")
    path.write_bytes(b"three, and longer")
    assert (tail.read(), tail.read()) == (b"three, and longer", b"")


def test_removed_file_is_no_error(path: Path, tail: Tail) -> None:
    append(path, b"one")
    tail.read()
    path.unlink()
    assert tail.read() == b""


def test_line_is_returned_when_complete(path: Path, lines: LineTail) -> None:
    append(path, b"one\ntw")
    assert (lines.read(), lines.read()) == (b"one\n", b"")
    append(path, b"o\n")
    assert (lines.read(), lines.read(), lines.rest()) == (b"two\n", b"", b"")
    append(path, b"end")
    assert (lines.read(), lines.rest(), lines.rest()) == (b"", b"end\n", b"")


def test_long_line_is_split(path: Path, lines: LineTail) -> None:
    append(path, b"x" * 11)
    assert lines.read() == b"x" * 11 + b"\n"
    append(path, b"y\n")
    assert lines.read() == b"y\n"


def test_unfinished_line_of_a_replaced_file_is_returned(path: Path, lines: LineTail) -> None:
    append(path, b"half")
    assert lines.read() == b""
    path.rename(path.with_name("old"))
    append(path, b"new\n")
    assert (lines.read(), lines.read()) == (b"half\nnew\n", b"")


@pytest.mark.parametrize(
    ("content", "end"),
    [(b"", b""), (b"one\n", b"one\n"), (b"x" * 9000 + b"\n", b"x" * 4095 + b"\n")],
)
def test_the_end_of_a_file(path: Path, content: bytes, end: bytes) -> None:
    assert end_of(path) == b""
    path.write_bytes(content)
    assert end_of(path) == end
