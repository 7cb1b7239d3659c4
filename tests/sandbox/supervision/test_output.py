"""Tests of a worker's output: complete on disk, bounded in memory, shown in few lines."""

import errno
import itertools
import json
import math
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.agents.base import AgentProgress, ProgressReader
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.events import Event, WorkerOutput, WorkerProgress
from orchestrator.base.files.arrival_times import ArrivalTimes
from orchestrator.base.text.redact import Redactor
from orchestrator.engine.interface.protocol import LogChunk
from orchestrator.sandbox.supervision.output import LogOptions, WorkerLog


class Heard(list[Event]):
    @property
    def lines(self) -> list[str]:
        return [event.line for event in self if isinstance(event, WorkerOutput)]

    @property
    def costs(self) -> list[float | None]:
        return [event.cost for event in self if isinstance(event, WorkerProgress)]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def log(tmp_path: Path, heard: Heard) -> Iterator[WorkerLog]:
    log = make(tmp_path, heard)
    with log:
        yield log


def make(directory: Path, heard: Heard, limit: int = 1 << 40) -> WorkerLog:
    reader = ShellAgent().progress_reader
    return WorkerLog(directory, 1, LogOptions(limit=limit), emit=heard.append, new_reader=reader)


def out(data: bytes) -> LogChunk:
    return LogChunk(stream="stdout", data=data)


def err(data: bytes) -> LogChunk:
    return LogChunk(stream="stderr", data=data)


def test_streams_are_written_unchanged(log: WorkerLog) -> None:
    for chunk in (out(b"one\nt"), err(b"\xff\x00\n"), out(b"wo"), err(b"last")):
        log.write(chunk)
    assert log.stdout.read_bytes() == b"one\ntwo"
    assert log.stderr.read_bytes() == b"\xff\x00\nlast"
    assert log.size == 14


def test_output_is_on_disk_at_once(log: WorkerLog) -> None:
    log.write(out(b"x"))
    assert log.stdout.read_bytes() == b"x", "a crash of the orchestrator must lose no output"


def test_flood_of_output_emits_few_lines(log: WorkerLog, heard: Heard) -> None:
    chunk = out(b"a line of output\n" * 4000)
    tracemalloc.start()
    for _ in range(300):
        log.write(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert log.stdout.stat().st_size == 300 * len(chunk.data)
    assert 1 <= len(heard.lines) <= 40
    assert peak < 4 << 20


def test_unfinished_line_is_bounded(log: WorkerLog, heard: Heard) -> None:
    tracemalloc.start()
    for _ in range(2000):
        log.write(out(b"x" * 32_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    log.write(out(b"\n"))
    log.tell(now=True)
    assert [len(line) for line in heard.lines] == [200]


def test_line_in_several_chunks_is_emitted_whole(log: WorkerLog, heard: Heard) -> None:
    for piece in (b"he", b"ll", b"o\nwor"):
        log.write(out(piece))
    log.tell(now=True)
    assert heard.lines == ["hello"]


def test_lines_of_two_streams_are_not_mixed(log: WorkerLog, heard: Heard) -> None:
    log.write(out(b"out "))
    log.write(err(b"err\n"))
    log.tell(now=True)
    log.write(out(b"still out\n"))
    log.tell(now=True)
    assert heard.lines == ["err", "out still out"]


@pytest.mark.parametrize("last", [out(b"no newline"), err(b"no newline")])
def test_last_line_without_newline_is_emitted(tmp_path: Path, heard: Heard, last: LogChunk) -> None:
    with make(tmp_path, heard) as log:
        log.write(out(b"first\n"))
        log.write(last)
    assert heard.lines[-1] == "no newline"


def test_emitted_lines_are_made_harmless(log: WorkerLog, heard: Heard) -> None:
    log.write(out(b"\x1b[2Jgone\xff\n"))
    log.tell(now=True)
    assert heard.lines == ["gone\ufffd"]


def test_blank_lines_are_not_emitted(log: WorkerLog, heard: Heard) -> None:
    log.write(out(b"  \n"))
    log.tell(now=True)
    assert heard.lines == []


TYPED = b'{"type": "orchestrator.report", '
PROGRESS = json.dumps({"type": "orchestrator.report", "cost": 0.5, "steps": 2}).encode()


@pytest.mark.parametrize("cut", range(0, len(PROGRESS) + 2, 3))
@pytest.mark.parametrize("after", [b"", b"more\n", b"more\nand more\npart"])
def test_progress_is_read_across_chunk_boundaries(
    log: WorkerLog, heard: Heard, cut: int, after: bytes
) -> None:
    line = PROGRESS + b"\n" + after
    log.write(out(b"before\n" + line[:cut]))
    log.write(out(line[cut:]))
    assert log.cost == 0.5
    assert heard.costs == [0.5]


def test_number_of_progress_events_is_bounded(
    log: WorkerLog, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    now = itertools.count(began, 0.01)
    monkeypatch.setattr(
        "orchestrator.sandbox.supervision.output.time", SimpleNamespace(monotonic=lambda: next(now))
    )
    for number in range(20_000):
        log.write(out(b'{"type": "orchestrator.report", "cost": %d}\n' % number))
    seconds = next(now) - began
    assert seconds > 600
    assert log.cost == 19_999
    assert 50 < len(heard.costs) < 100 + 100 * math.log(seconds / 100) + 10
    log.finish()
    assert heard.costs[-1] == 19_999
    told = len(heard.costs)
    log.finish()
    assert len(heard.costs) == told


def test_latest_progress_is_used(log: WorkerLog, heard: Heard) -> None:
    log.write(out(TYPED + b'"cost": 1}\n' + TYPED + b'"cost": 2}\nnoise\n'))
    assert (log.cost, heard.costs) == (2, [2])
    log.write(out(b'{"type": "orchestrator.report", "steps": 3}\n'))
    log.tell(now=True)
    assert [event.steps for event in heard if isinstance(event, WorkerProgress)] == [None, 3]
    assert heard.costs == [2, 2]


def test_progress_reader_is_recreated_on_restart(tmp_path: Path, heard: Heard) -> None:
    def counting() -> ProgressReader:
        seen = itertools.count(1)
        return lambda _: AgentProgress(steps=next(seen))

    options = LogOptions(limit=1 << 20)
    with WorkerLog(tmp_path, 1, options, emit=heard.append, new_reader=counting) as log:
        log.write(out(b'{"a": 1}\n{"b": 1}\n\nText: 1\n{"c": 1}\n'))
        assert log.steps == 4
        assert [event.steps for event in heard if isinstance(event, WorkerProgress)] == [4]
        log.restart()
        log.write(out(b'{"a": 1}\n'))
        assert log.steps == 1


def test_progress_on_stderr_is_ignored(log: WorkerLog) -> None:
    log.write(err(b'{"type": "orchestrator.report", "cost": 1}\n'))
    assert log.cost is None


def test_full_disk_does_not_stop_reading(tmp_path: Path, heard: Heard) -> None:
    """Output must be read from the container even if it cannot be written."""
    (tmp_path / "stdout.log").symlink_to("/dev/full")
    with make(tmp_path, heard) as log:
        log.write(out(b'{"type": "orchestrator.report", "cost": 1}\n'))
        log.write(out(b"more\n"))
        log.write(err(b"kept?\n"))
    assert log.failure is not None
    assert log.failure.errno == errno.ENOSPC
    assert log.cost == 1
    assert heard.lines


def test_output_over_the_limit_is_counted_but_not_written(tmp_path: Path, heard: Heard) -> None:
    with make(tmp_path, heard, limit=10) as log:
        log.write(out(b"12345678"))
        log.write(err(b"90ab"))
        log.write(out(b"cdef"))
    assert log.stdout.read_bytes() + log.stderr.read_bytes() == b"1234567890"
    assert log.size == 16


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the clock of recorded times, which stands at `at`."""
    clock = SimpleNamespace(at=1000, time=lambda: clock.at)
    monkeypatch.setattr("orchestrator.base.files.arrival_times.time", clock)
    return clock


def test_a_resumed_task_keeps_the_times_of_its_output(
    tmp_path: Path, heard: Heard, clock: SimpleNamespace
) -> None:
    with ExitStack() as killed:
        first = killed.enter_context(make(tmp_path, heard))
        first.write(out(b"before\n"))
        first.write(err(b"bad\n"))
        clock.at = 2000
        first.write(out(b"last\n"))
        # The next process is killed before it has received everything again.
        killed.enter_context(make(tmp_path, heard)).write(out(b"bef"))
        clock.at = 3000
        with make(tmp_path, heard) as log:
            log.write(out(b"before\nlast\nmissed\n"))
            log.restart()
            log.write(err(b"bad\n"))
            clock.at = 4000
            log.write(out(b"before\nlast\nmissed\nnew\n"))
    assert not list(tmp_path.glob("*.before-resume"))
    times = ArrivalTimes.of(log.stdout)
    assert [times.at(offset).timestamp() for offset in (0, 7, 12, 19)] == [1000, 2000, 3000, 4000]
    assert ArrivalTimes.of(log.stderr).at(0).timestamp() == 1000


def test_a_stage_that_starts_again_has_new_times(
    tmp_path: Path, heard: Heard, clock: SimpleNamespace
) -> None:
    options = LogOptions(limit=100, stage="setup")
    reader = ShellAgent().progress_reader
    for clock.at in (1000, 2000):
        with WorkerLog(tmp_path, 1, options, emit=heard.append, new_reader=reader) as log:
            log.write(out(b"hello\n"))
    assert ArrivalTimes.of(log.stdout).at(0).timestamp() == 2000


@pytest.mark.parametrize("make_chunk", [out, err])
def test_secrets_are_redacted_in_files_and_events(
    tmp_path: Path, heard: Heard, make_chunk: Callable[[bytes], LogChunk]
) -> None:
    # One value is a prefix of the other: it is held back until the log ends.
    redactor = Redactor({"API": b"correct-horse", "LONG": b"correct-horse-battery"})
    log = WorkerLog(
        tmp_path,
        1,
        LogOptions(limit=1000, redactor=redactor),
        emit=heard.append,
        new_reader=ShellAgent().progress_reader,
    )
    with log:
        for data in (b"a correct-", b"horse\n", b"and at the end correct-horse"):
            log.write(make_chunk(data))
            log.tell(now=True)
    kept = log.stdout.read_bytes() + log.stderr.read_bytes()
    assert kept == b"a [redacted:API]\nand at the end [redacted:API]"
    assert heard.lines == ["a [redacted:API]", "and at the end [redacted:API]"]
