"""Tests of the search for a report in ordinary, damaged and hostile output."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agents.output.search import (
    find_report,
    json_lines,
    last_line,
    parse_object,
    text_tail,
)

KEYS = frozenset({"status", "stop_reason", "steps"})
REPORT: dict[str, object] = {
    "status": "success",
    "stop_reason": "llm_done",
    "output": "done {\n{ \u00e9 \U0001f600",
    "steps": 3,
    "tools_used": [{"name": "write_file"}],
}
PRINTED = json.dumps(REPORT, indent=2).encode()
MIB = 1024 * 1024
CPU_SECONDS = 4.0
"""Far above what is measured (0.4 s on a quiet machine) and far below an unbounded search."""


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Path]:
    """Return a file that is deleted after the test: some are hundreds of megabytes large."""
    path = tmp_path / "stdout.log"
    yield path
    path.unlink()


def fill(path: Path, *parts: bytes | tuple[bytes, int]) -> None:
    """Write bytes, and patterns repeated up to a size."""
    with path.open("wb") as file:
        for part in parts:
            pattern, size = part if isinstance(part, tuple) else (part, len(part))
            block = pattern * max(1, MIB // max(1, len(pattern)))
            for _ in range(size // len(block)):
                file.write(block)
            file.write(block[: size % len(block)])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"", b"\n"),
        (b"npm warn something\n", b"\n"),
        (b"npm warn something\r\n", b"\r\nbye"),
        (b"12:00:00 - LiteLLM:DEBUG: utils.py:550 - \n\n", b"\n12:00:01 - LiteLLM:DEBUG: atexit\n"),
        (b"{\n{\n{]\n", b"\n{\n{]\n"),
        (b'{"status": "partial", "stop_reason": "x", "steps": 9}\n', b"\n"),
        (b"", b'\n{"level": "info", "status": 200}\n' * 3),
        (b"", b'\n{"status": "failed", "stop_reason": 1, "steps": NaN}\n'),
        (b"", b'\n{"status": "failed", "stop_reason": 1, "steps": [Infinity]}\n'),
        (b"", b'\n{"status": "failed", "stop_reason": 1, "steps": ' + b"9" * 5000 + b"}\n"),
        (b"", b'\n{"steps": 1, "status": 1, "stop_reason": ' + b"[" * 20_000),
        (b"", b'\n{"steps": 1, "status": 1, "stop_reason": "never closed\n'),
        (b"", b'\n  {"status": "failed", "stop_reason": 1, "steps": 1}\n'),
        (b"", b'\nx{"status": "failed", "stop_reason": 1, "steps": 1}\n'),
        (b"", b'\n{"a": {"status": "failed", "stop_reason": 1, "steps": 1}}\n'),
        (b"\xff\xfe\x00\n" * 3, b"\n\xc3\x28\xf0\x9f\n"),
    ],
)
def test_report_is_found_within_other_output(output: Path, before: bytes, after: bytes) -> None:
    output.write_bytes(before + PRINTED + after)
    assert find_report(output, KEYS) == REPORT


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{",
        b"\n{",
        b"null",
        b"[]",
        b'"status" "stop_reason" "steps"',
        b'[{"status": 1, "stop_reason": 1, "steps": 1}]',
        b'{"status": 1, "stop_reason": 1}',
        PRINTED[:-1],
        PRINTED.replace(b"steps", b"st\xffps"),
    ],
)
def test_output_without_a_report(output: Path, content: bytes) -> None:
    output.write_bytes(content)
    assert find_report(output, KEYS) is None


def test_last_matching_object_is_returned(output: Path) -> None:
    output.write_bytes(b'{"status": "a"}\n{"cost": 1}\n{"other": 2}\n')
    assert find_report(output, frozenset({"status"}), frozenset({"cost"})) == {"cost": 1}
    assert find_report(output, frozenset({"status"})) == {"status": "a"}


def test_invalid_bytes_inside_a_string_are_replaced(output: Path) -> None:
    output.write_bytes(b'{"status": "\xff", "stop_reason": "\xe2\x82", "steps": 1}')
    assert find_report(output, KEYS) == {"status": "\ufffd", "stop_reason": "\ufffd", "steps": 1}


@pytest.mark.parametrize("length", [3_900, 4_090, 65_400, 65_530, 262_100, 700_000])
def test_long_report_is_read_completely(output: Path, length: int) -> None:
    report = {"output": "a\u00e9\n" * (length // 4), **REPORT, "rest": ["x"] * 40}
    output.write_bytes(b"noise\n" + json.dumps(report, ensure_ascii=False, indent=1).encode())
    assert find_report(output, KEYS) == report


def test_keys_of_a_report_may_be_far_apart(output: Path) -> None:
    report = {"status": 1, "a": "x" * 300_000, "stop_reason": 2, "b": "y" * 300_000, "steps": 3}
    output.write_bytes(json.dumps(report).encode() + b"\n")
    assert find_report(output, KEYS) == report


@pytest.mark.parametrize("padding", range(30))
def test_report_across_the_first_window_is_found(output: Path, padding: int) -> None:
    values = [True, None, -1.5e-10, 123456789, {}, [], "\u20ac\U0001f600", {"a": False}]
    report = {**REPORT, "p": "x" * padding, "values": values * 200}
    output.write_bytes(json.dumps(report).encode())
    assert find_report(output, KEYS) == report


def test_report_over_one_mebibyte_is_ignored(output: Path) -> None:
    output.write_bytes(json.dumps({**REPORT, "z": "x" * MIB}).encode())
    assert find_report(output, KEYS) is None


def test_report_across_chunk_boundaries_is_found(output: Path) -> None:
    near = 256 * 1024
    report = {"first": "x" * 900, **REPORT}
    printed = json.dumps(report, indent=2).encode()
    for offset in [*range(near - 40, near + 5), *range(near - len(printed) - 3, near, 7)]:
        output.write_bytes(b"x" * (offset - 1) + b"\n" + printed + b"\n{}\n")
        assert find_report(output, KEYS) == report, offset
        output.write_bytes(b"\n" + printed + b"\n" + b"x" * (offset - 1))
        assert find_report(output, KEYS) == report, offset


def _simple_search(content: bytes) -> dict[str, object] | None:
    """Find the report without bounds on time or memory."""
    found = None
    for line_start in [0, *(i + 1 for i, byte in enumerate(content) if byte == 10)]:
        text = content[line_start:].decode("utf-8", "replace")
        try:
            value, _ = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.keys() >= KEYS:
            found = value
    return found


@pytest.mark.parametrize("seed", range(300))
def test_random_output_gives_the_result_of_a_simple_search(output: Path, seed: int) -> None:
    rng = random.Random(seed)
    tokens = [b"{", b"}", b"[", b"]", b":", b",", b"\n", b"\n{", b'"', b"\\", b" ", b"1", b"\xff"]
    tokens += [b'"status"', b'"steps"', b'"stop_reason"', b'\n{"status":1,', b'"steps":2,']
    tokens += [b'"stop_reason":"x"}', PRINTED, b"\r\n", rng.randbytes(20)]
    content = b"".join(rng.choices(tokens, k=rng.randrange(120)))
    output.write_bytes(content)
    assert find_report(output, KEYS) == _simple_search(content)


LINE = b'an ordinary line of output with { braces } and "status" in it\n'
JSON_LOG = b'{"level":"info","message":"request","path":"/api","ms":12}\n'


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([(LINE, 150 * MIB), b"\n" + PRINTED + b"\n", (LINE, 150 * MIB)], id="middle"),
        pytest.param([PRINTED + b"\n", (JSON_LOG, 40 * MIB)], id="before-json-log"),
        pytest.param([PRINTED + b"\n", (b"x", 150 * MIB)], id="before-one-line-of-150-MB"),
        pytest.param([(b"\xff", 50 * MIB), b"\n" + PRINTED], id="after-50-MB-of-no-text"),
        pytest.param([PRINTED + b"\n", (b"\n", 50 * MIB)], id="before-blank-lines"),
        pytest.param([PRINTED + b"\n", (b"\n{", 20 * MIB)], id="before-open-braces"),
    ],
)
def test_report_is_found_quickly_in_large_output(
    output: Path, parts: list[bytes | tuple[bytes, int]]
) -> None:
    fill(output, *parts)
    started = time.process_time()
    assert find_report(output, KEYS) == REPORT
    assert time.process_time() - started < CPU_SECONDS


@pytest.mark.parametrize(
    "pattern",
    [
        b'{"a":[\n',
        b'{"status":{"stop_reason":{"steps":[\n',
        b'{"status":"stop_reason","steps\n',
        b'{"status":1,"stop_reason":1,"a":{"steps":[1,2,\n',
        b'{"status":1,"stop_reason":1,"a":{"steps":2}}\n',
        b'{"x":1}\n' * 1000 + b'"status""stop_reason""steps"\n',
        b'{" ' * 9 + b'"status""stop_reason""steps"\n',
        b"{" + b"\n" * 999 + b'{"status""stop_reason""steps"\n',
        b'{"status":1,"stop_reason":1,"a":{"steps":[' + b"{}," * 340_000 + b"{}]}}\n",
        b'{"status":1,"stop_reason":1,"a":{"steps":["' + b"\xff" * 1_040_000 + b'"]}}\n',
        b'{"status":1,"stop_reason":1,"a":{"steps":[\n' + b'{"b":1},\n' * 90_000 + b"{}]}}\n",
    ],
)
def test_hostile_file_takes_bounded_time(output: Path, pattern: bytes) -> None:
    fill(output, (pattern, 20 * MIB))
    started = time.process_time()
    assert find_report(output, KEYS) is None
    assert time.process_time() - started < CPU_SECONDS


_PEAK = """
import sys
from pathlib import Path
from orchestrator.agents.output.search import find_report
def peak():
    # Not `ru_maxrss`: it counts what the process was before exec, which is pytest.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
before = peak()
found = find_report(Path(sys.argv[1]), frozenset({"status", "stop_reason", "steps"}))
print(peak() - before, found is not None)
"""


@pytest.mark.parametrize(
    ("parts", "found", "limit"),
    [
        ([PRINTED + b"\n", (b"x", 150 * MIB)], True, 8),
        ([(LINE, 50 * MIB), b"\n" + PRINTED + b"\n", (LINE, 50 * MIB)], True, 8),
        ([(b'{"status":1,"stop_reason":1,\n', 50 * MIB)], False, 16),
        # The worst case: every mebibyte is a valid object with 340,000 empty objects.
        (
            [(b'{"status":1,"stop_reason":1,"a":{"steps":[' + b"{}," * 340_000 + b"{}]}}\n", MIB)],
            False,
            64,
        ),
    ],
)
def test_memory_does_not_depend_on_the_file_size(
    output: Path, parts: list[bytes | tuple[bytes, int]], found: bool, limit: int
) -> None:
    fill(output, *parts)
    command = [sys.executable, "-c", _PEAK, str(output)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    grown, was_found = done.stdout.split()
    assert was_found == str(found)
    assert int(grown) < limit * 1024


def test_report_before_many_similar_lines_is_found(output: Path) -> None:
    fill(output, PRINTED + b"\n", (b'{"a":{"status":1,"stop_reason":2,"steps":3}}\n', 2 * MIB))
    assert find_report(output, KEYS) == REPORT


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"cost": 1}', {"cost": 1}),
        ('{"cost": 1} \r\n', {"cost": 1}),
        ('{"cost": 1} {}', None),
        ('{"cost": NaN}', None),
        ("[1]", None),
        ("", None),
        ('{"a":' * 100_000, None),
        ('{"a":' + "9" * 10_000 + "}", None),
    ],
)
def test_parse_object_accepts_exactly_one_object(text: str, value: object) -> None:
    assert parse_object(text) == value


@pytest.mark.parametrize(
    ("content", "limit", "tail"),
    [
        (b"", 10, ""),
        (b"abc", 10, "abc"),
        (b"abc", 2, "bc"),
        ("x\u20acy".encode(), 3, "y"),
        ("x\u20acy".encode(), 4, "\u20acy"),
        (b"\x80\xffa", 10, "\ufffd\ufffda"),
    ],
)
def test_text_tail_returns_the_end_of_a_file(
    output: Path, content: bytes, limit: int, tail: str
) -> None:
    output.write_bytes(content)
    assert text_tail(output, limit) == tail


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", None),
        (b" \n\n\t\n", None),
        (b"first\nsecond\n\n", "second"),
        (b"first\r\nsecond\r\n", "second"),
        (b"\x1b[31mred\x1b[0m\x07\n", "red\ufffd"),
        ("abc\u202edef".encode(), "abc\ufffddef"),
    ],
)
def test_last_line_is_made_harmless(output: Path, content: bytes, line: str | None) -> None:
    output.write_bytes(content)
    assert last_line(output) == line


def test_escape_sequences_are_no_line(output: Path) -> None:
    output.write_bytes(b"\x1b[31mthe cause\x1b[0m\n\x1b[0m\n\x1b]0;title\x07\r\n")
    assert last_line(output) == "the cause"
    assert text_tail(output, 100) == "the cause\n\n\r\n"


def test_last_line_is_bounded(output: Path) -> None:
    fill(output, (b"x", 20 * MIB))
    assert len(last_line(output) or "") == 200


def test_json_lines_are_read_in_order(output: Path) -> None:
    long = b'{"type":"b","pad":"' + b"x" * MIB + b'"}\n'
    more = b'{"type":"b","n":NaN}\n[{"type":"a"}]\n{"type":"b","n":2,"s":"\xff"}\n{"type":"a"}'
    first = b'noise\n{"type":"a","n":1}\n {"type":"a"}\n{"type":"c"}\n{"type":"a"\n'
    fill(output, first, long, more)
    found = list(json_lines(output, b'"a"', b'"b"'))
    assert found == [
        {"type": "a", "n": 1},
        {"type": "b", "n": 2, "s": "\ufffd"},
        {"type": "a"},
    ]


@pytest.mark.parametrize(
    "pattern",
    [b"{\n", b'{"a":1}\n', b"\n", b"{", b'{"a":"' + b"x" * 900_000 + b'"}\n', b'{"a":' * 9 + b"\n"],
)
def test_number_of_json_lines_is_bounded(output: Path, pattern: bytes) -> None:
    fill(output, (pattern, 100 * MIB))
    started = time.process_time()
    count = sum(1 for _ in json_lines(output, b"{"))
    assert time.process_time() - started < CPU_SECONDS
    assert count <= 250_000
