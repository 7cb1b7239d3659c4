"""Tests of batches on disk: what is refused, what is done already, what memory it takes."""

import io
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from orchestrator.sandbox.models import EndReason, Finished, Submission
from orchestrator.sandbox.queue import Batch, Results, as_line
from tests.support.errors import raises

ONE = {"id": "a", "command": ["true"]}


def _lines(*entries: Any) -> bytes:
    return b"".join(
        (entry if isinstance(entry, bytes) else json.dumps(entry).encode()) + b"\n"
        for entry in entries
    )


def _batch(*entries: Any) -> Batch:
    return Batch(io.BytesIO(_lines(*entries)), "b")


def _done(name: str, **more: Any) -> Finished:
    return Finished(id=name, exit_code=0, reason=EndReason.EXITED, **more)


WRONG = [
    (b"{", "is not JSON"),
    (b"[]", "line 2"),
    (b'"\xff"', "is not JSON"),
    ({"command": ["true"]}, "`id` is missing"),
    ({"id": "", "command": ["true"]}, "`id` is missing"),
    ({"id": 5, "command": ["true"]}, "`id`"),
    ({"id": "x" * 201, "command": ["true"]}, "`id`"),
    ({"id": "b"}, "`command` is missing"),
    ({"id": "b", "command": []}, "`command`"),
    ({"id": "b", "command": "true"}, "`command`"),
    ({"id": "b", "command": ["true"], "timout": 5}, "`timout` is unknown"),
    ({"id": "b", "command": ["true"], "timeout": "5"}, "`timeout`"),
    ({"id": "b", "command": ["true"], "timeout": 0}, "`timeout`"),
    ({"id": "b", "command": ["true"], "timeout": 1e400}, "`timeout`"),
    ({"id": "b", "command": ["true"], "files": {"../x": ""}}, "without `..`"),
    ({"id": "b", "command": ["true"], "files": {"x": {"base64": "@"}}}, "base64"),
    ({"id": "b", "command": ["true"], "stdin": {"base64": "", "x": 1}}, "`stdin`"),
    ({"id": "b", "command": ["true"], "env": {"A=B": "1"}}, "`env`"),
    (b'{"id": "b", "command": ["true"], "stdin": "\\ud800"}', "is not JSON"),
    (b"[" * 100_000, "is not JSON"),
    ({"id": "a", "command": ["false"]}, "line 1 has the id `a` too"),
]


@pytest.mark.parametrize(("line", "said"), WRONG)
def test_batch_with_wrong_line_is_refused_with_its_number(line: Any, said: str) -> None:
    with raises("batch.invalid", "b, line 2", said) as caught:
        _batch(ONE, line)
    assert len(caught.value.message) < 600


def test_all_wrong_lines_are_listed_up_to_a_number() -> None:
    with raises("batch.invalid", "line 1:", "line 40:", "40 mistakes"):
        _batch(*[b"{"] * 40)
    with raises("batch.invalid", "line 50:", "and 1 more"):
        _batch(*[b"{"] * 10_000)


def test_line_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.sandbox.queue.LONGEST_LINE", 1000)
    assert len(_batch({**ONE, "stdin": "x" * 900})) == 1
    with raises("batch.invalid", "line 2", "is longer than 1,000 bytes"):
        _batch(ONE, b"x" * 10_000)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf\r\n"])
def test_batch_without_submission_is_refused(content: bytes) -> None:
    with raises("batch.empty"):
        Batch(io.BytesIO(content), "b")


def test_contents_are_text_or_base64() -> None:
    files = {"a": "é", "b": {"base64": "/wA="}}
    line = {**ONE, "stdin": {"base64": "AAE="}, "files": files, "timeout": 3, "out": ["c"]}
    batch = Batch(io.BytesIO(b"\xef\xbb\xbf\r\n" + _lines(line).replace(b"\n", b"\r\n")), "b")
    (found,) = batch.take()
    assert found == Submission(
        id="a", command=("true",), stdin=b"\0\1", files={"a": "é".encode(), "b": b"\xff\0"},
        timeout=3, out=("c",),
    )  # fmt: skip
    said = as_line(_done("a", stdout=b"\xff", stderr="\x9b\u202e é".encode()))
    assert said.isascii()
    assert json.loads(said)["stdout"] == {"base64": "/w=="}
    assert json.loads(said)["stderr"] == "\x9b\u202e é"
    assert Finished.model_validate_json(said).stdout == b"\xff"


def test_batch_from_the_middle_of_a_file_is_read_from_there_again() -> None:
    file = io.BytesIO(b"heading\n" + _lines(ONE, {**ONE, "id": "b"}))
    file.readline()
    batch = Batch(file, "-")
    assert [found.id for found in batch.take()] == ["a", "b"]


def test_done_submissions_are_not_taken() -> None:
    batch = _batch(*({**ONE, "id": str(number)} for number in range(5)))
    assert [batch.note("3"), batch.note("3"), batch.note("x")] == [True, False, False]
    assert batch.left == 4
    assert [found.id for found in batch.take()] == ["0", "1", "2", "4"]
    assert (batch.left, list(batch.take())) == (0, [])


def test_memory_does_not_grow_with_the_batch(tmp_path: Path) -> None:
    file = tmp_path / "batch"
    with file.open("wb") as out:
        for number in range(10_000):
            out.write(_lines({**ONE, "id": f"n{number}", "stdin": "x" * 2000}))
    tracemalloc.start()
    try:
        with file.open("rb") as source:
            batch = Batch(source, "b")
            taken = sum(1 for _ in batch.take())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken == 10_000
    assert peak < 2 * 1024**2, peak


class TestResults:
    def _results(self, path: Path, *, resume: bool = True) -> Results:
        return Results(path, resume=resume)

    def test_torn_end_is_removed_and_others_are_kept(self, tmp_path: Path) -> None:
        path, lines = tmp_path / "r", [as_line(_done(name)) + "\n" for name in "ab"]
        whole = "".join(lines)
        for cut in (1, 2, len(lines[1]) // 2, len(lines[1]) - 1, len(lines[1])):
            path.write_text(whole[:-cut] if cut else whole)
            results = self._results(path)
            kept = [found.id for found in results.read()]
            results.write(as_line(_done("c")))
            results.close()
            # The end of the line alone may be missing.
            expected = ["a", "b"] if cut == 1 else ["a"]
            assert kept == expected
            after = [json.loads(line)["id"] for line in path.read_text().splitlines()]
            assert after == [*expected, "c"], cut
        path.write_bytes(whole.encode() + b"\0" * 4096)
        results = self._results(path)
        assert [found.id for found in results.read()] == ["a", "b"]
        results.close()
        assert path.read_text() == whole

    def test_each_result_is_on_the_disk_before_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, synced, sync = tmp_path / "r", [0], os.fsync
        results = self._results(path)

        def note(descriptor: int) -> None:
            sync(descriptor)
            synced.append(path.stat().st_size)

        monkeypatch.setattr("os.fsync", note)
        for name in "abc":
            results.write(as_line(_done(name)))
            assert synced[-1] == path.stat().st_size > synced[-2]
        results.close()

    def test_other_files_are_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        for content in ("hello\nworld\n", "{}\n" + as_line(_done("a")) + "\n"):
            path.write_text(content)
            results = self._results(path)
            with raises("batch.other-results", "line 1"):
                list(results.read())
            results.close()
            assert path.read_text() == content

    def test_file_with_results_in_use_or_of_other_kind_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "r"
        first = self._results(path, resume=False)
        first.write(as_line(_done("a")))
        with raises("batch.busy"):
            self._results(path)
        first.close()
        with raises("batch.has-results"):
            self._results(path, resume=False)
        os.mkfifo(tmp_path / "fifo")
        for other in ("fifo", ".", "r/x"):
            with raises("batch.unwritable"):
                self._results(tmp_path / other)
        empty = tmp_path / "empty"
        empty.touch()
        self._results(empty, resume=False).close()

    def test_result_that_does_not_fit_leaves_the_file_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "r"
        results = self._results(path)
        results.write(as_line(_done("a")))
        before, write = path.read_bytes(), os.write

        def full(descriptor: int, data: bytes) -> int:
            if len(data) < 20:
                raise OSError(28, "No space left on device")
            return write(descriptor, data[:-10])

        with monkeypatch.context() as patch:
            patch.setattr("os.write", full)
            with raises("batch.unwritable", "No space left"):
                results.write(as_line(_done("b")))
        assert path.read_bytes() == before
        results.write(as_line(_done("c")))
        results.close()
        assert path.read_text().count("\n") == 2
