"""Tests of the views of a run, including hostile text."""

import io
import re
import threading
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from orchestrator.base.events import (
    UNSENT,
    Intervention,
    Notice,
    RunStarted,
    WorkerConnected,
    WorkerDone,
    WorkerHarvesting,
    WorkerMeasured,
    WorkerOutput,
    WorkerPreparing,
    WorkerProgress,
    WorkerRetrying,
    WorkerStarted,
    WorkerStopping,
    WorkerWaiting,
)
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.faces.cli.output.live_table import MAX_FINISHED, BoardView
from orchestrator.faces.cli.output.views import PlainView, QuietView, make_view
from tests.support.views import plain

HOSTILE = "\x1b[2J\x1b]0;pwned\x07[red]not[/red] [/] \u202eevil\r\n\x9b31m{x}"


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


EARLIER = datetime(2026, 1, 1, tzinfo=UTC)
"""The current time of views that show the time of the latest event."""


def started(count: int = 2, slots: int = 2) -> RunStarted:
    workers = tuple(
        WorkerSpec(worker_id=n, task=f"task {n}", model="gpt" if n == 1 else None)
        for n in range(1, count + 1)
    )
    return RunStarted(run_id="run", base="0123456789abcdef", workers=workers, slots=slots)


def board(*events, width: int = 100) -> str:
    """Return the live table after some events."""
    view = BoardView(Terminal(), now=lambda: EARLIER)
    for event in events:
        view(event)
    return draw(view, width)


def draw(view: BoardView, width: int = 100) -> str:
    paper = io.StringIO()
    Console(file=paper, width=width).print(view.render())
    return paper.getvalue()


@pytest.fixture(autouse=True)
def _no_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


class TestPlain:
    def test_plain_view_prints_a_line_per_event(self, result):
        assert plain(
            started(3),
            Notice(message="look"),
            WorkerPreparing(worker_id=1),
            WorkerStarted(worker_id=1, container="c", ports={3010: 49161, 3000: 49160}),
            WorkerStarted(worker_id=2, container="c"),
            WorkerOutput(worker_id=1, stream="stdout", line="not shown"),
            WorkerProgress(worker_id=1, cost=1.0),
            WorkerStopping(worker_id=2, reason="timeout"),
            WorkerHarvesting(worker_id=2),
            Intervention(worker_id=1, trigger="silence", detail="it is silent", stops=False),
            WorkerRetrying(worker_id=2, attempt=2, reason="agent_failed", delay=5),
            *(WorkerDone(result=worker) for worker in result.results),
        ) == [
            "run run: 3 workers, 2 at the same time, base 0123456789ab",
            "note: look",
            "worker 1 started: task 1 (gpt)",
            "worker 1: http://127.0.0.1:49160 -> 3000",
            "worker 1: http://127.0.0.1:49161 -> 3010",
            "worker 2 started: task 2",
            "worker 2 is being stopped: timeout",
            "! worker 1: it is silent",
            "worker 2 failed its attempt 1 (agent_failed), attempt 2 in 5.0 s",
            "✓ worker 1 success in 12.3 s: 2 files, $0.0123",
            "✗ worker 2 failed (oom) after 2 min 5 s: over its 512 MiB",
            "✗ worker 3 timeout after 10 min",
        ]

    def test_plain_view_makes_text_harmless(self, result):
        bad = result.results[1].model_copy(update={"message": HOSTILE})
        lines = plain(
            Notice(message=HOSTILE),
            WorkerStopping(worker_id=1, reason=HOSTILE),
            Intervention(worker_id=1, trigger="needs_input", detail=HOSTILE, stops=True),
            WorkerRetrying(worker_id=1, attempt=2, reason=HOSTILE, delay=1),
            WorkerDone(result=bad),
        )
        assert len(lines) == 5
        assert all(line.isprintable() for line in lines)

    def test_heartbeat_names_running_workers(self, result):
        now = [100.0]
        lines: list[str] = []
        view = PlainView(lines.append, clock=lambda: now[0])
        view.heartbeat()
        view(started(3))
        for number in (3, 1, 2):
            view(WorkerStarted(worker_id=number, container="c"))
        view(WorkerDone(result=result.results[1]))
        now[0] = 220.0
        del lines[:]
        view.heartbeat()
        assert lines == ["still running: 1, 3 (120 s)"]

    def test_heartbeat_thread_starts_and_stops(self):
        beaten = threading.Event()

        def write(line: str) -> None:
            if line.startswith("still running"):
                beaten.set()

        with PlainView(write, interval=0.01) as view:
            view(started())
            view(WorkerStarted(worker_id=1, container="c"))
            assert beaten.wait(60)
        assert not view._heart.is_alive()

    def test_only_a_lack_of_resources_has_a_line_of_its_own(self):
        said = plain(
            started(2),
            WorkerWaiting(worker_id=1, cause="machine", reason="only 3 MiB of memory are free"),
            WorkerWaiting(worker_id=2, cause="dependency", reason="task `a` must end first"),
        )
        assert "worker 1 waits: only 3 MiB of memory are free" in said
        assert "must end first" not in said


class TestBoard:
    def test_live_table_shows_retries_and_alerts(self):
        view = BoardView(Terminal(), now=lambda: EARLIER)
        paper = io.StringIO()
        view._console.file = paper
        for event in (
            started(2),
            WorkerStarted(worker_id=1, container="c"),
            WorkerRetrying(worker_id=1, attempt=3, reason="agent_failed", delay=5),
            WorkerStarted(worker_id=2, container="c"),
            Intervention(worker_id=2, trigger="silence", detail=HOSTILE, stops=False),
        ):
            view(event)
        drawn = draw(view)
        assert "retrying" in drawn
        assert "attempt 2 failed: agent_failed" in drawn
        told = paper.getvalue()
        assert told.startswith("! worker 2: ")
        assert "\x1b[2J" not in told

    def test_workers_that_wait_say_why(self):
        why = "task `plan` must end first"
        drawn = board(
            started(5),
            WorkerStarted(worker_id=1, container="c"),
            WorkerPreparing(worker_id=2),
            *(WorkerWaiting(worker_id=n, cause="dependency", reason=why) for n in (3, 4)),
        )
        assert f"worker 3 and 1 more wait: {why}" in drawn
        assert "worker 5 waits: all 2 slots are in use" in drawn

    def test_live_table_rows(self, result):
        drawn = board(
            started(4),
            WorkerStarted(worker_id=2, container="c"),
            WorkerOutput(worker_id=2, stream="stdout", line="reading src/auth.py"),
            WorkerProgress(worker_id=2, cost=0.5),
            WorkerPreparing(worker_id=3),
            WorkerDone(result=result.results[0]),
        )
        lines = [line.rstrip() for line in drawn.splitlines()]
        assert [line.split() for line in lines] == [
            ["WORKER", "TASK", "MODEL", "STATE", "ELAPSED", "COST", "LAST", "LINE"],
            ["1", "task", "1", "gpt", "success", "12.3", "s", "$0.0123"],
            ["2", "task", "2", "default", "running", "0.0", "s", "$0.5000", "reading",
             "src/auth.py"],
            ["3", "task", "3", "default", "preparing"],
            ["worker", "4", "waits:", "all", "2", "slots", "are", "in", "use"],
            ["1", "of", "4", "done,", "1", "queued"],
        ]  # fmt: skip

    def test_measurement_columns_appear_with_the_first_measurement(self, result):
        events = (
            started(4),
            WorkerStarted(worker_id=2, container="c"),
            WorkerProgress(worker_id=2, cost=0.5, steps=7),
            WorkerOutput(worker_id=2, stream="stdout", line="reading src/auth.py"),
            WorkerStarted(worker_id=3, container="c"),
            WorkerMeasured(worker_id=2, cpus=1.371, memory=312_000_000, disk=14_200_000, files=128),
            WorkerMeasured(worker_id=3, disk=12),
            WorkerDone(result=result.results[0]),
        )
        view = BoardView(Terminal(), now=lambda: EARLIER)
        for event in events:
            view(event)
        view._console.width = 120
        lines = [line.split() for line in draw(view, 120).splitlines()]
        assert lines == [
            ["WORKER", "TASK", "MODEL", "STATE", "ELAPSED", "COST", "STEPS", "FILES", "CPU",
             "MEMORY", "DISK", "LAST", "LINE"],
            ["1", "task", "1", "gpt", "success", "12.3", "s", "$0.0123", "7", "2"],
            ["2", "task", "2", "default", "running", "0.0", "s", "$0.5000", "7", "128", "137%",
             "297.5", "MiB", "13.5", "MiB", "reading", "src/auth.py"],
            ["3", "task", "3", "default", "running", "0.0", "s", "12", "bytes"],
            ["worker", "4", "waits:", "all", "2", "slots", "are", "in", "use"],
            ["1", "of", "4", "done,", "1", "queued"],
        ]  # fmt: skip

    def test_narrow_terminal_shows_last_lines_below_the_table(self):
        view = BoardView(Terminal())
        view(started(1))
        view(WorkerStarted(worker_id=1, container="c"))
        view(WorkerMeasured(worker_id=1, cpus=0.5))
        view(WorkerOutput(worker_id=1, stream="stdout", line=HOSTILE * 3))
        view._console.width = 80
        lines = draw(view, 80).splitlines()
        assert lines[0].split()[-5:] == ["STEPS", "FILES", "CPU", "MEMORY", "DISK"]
        assert "50%" in lines[1]
        assert lines[2].startswith("1: \ufffd[2J")
        assert (len(lines), len(lines[2])) == (4, 80)
        assert all(line.isprintable() for line in lines)

    def test_elapsed_time_counts_from_the_recorded_start(self):
        view = BoardView(Terminal())
        view(started(1))
        view(WorkerStarted(worker_id=1, container="c", at=datetime.now(UTC) - timedelta(minutes=2)))
        assert "2 min" in draw(view)

    def test_next_attempt_resets_the_row(self, result):
        drawn = board(
            started(1), WorkerDone(result=result.results[0]), WorkerPreparing(worker_id=1)
        )
        assert drawn.splitlines()[1].split()[:5] == ["1", "task", "1", "gpt", "preparing"]
        assert "0 of 1 done" in drawn

    def test_elapsed_is_the_time_since_the_start(self):
        now = [datetime.now(UTC)]
        view = BoardView(Terminal(), now=lambda: now[0])
        view(started(1))
        view(WorkerStarted(worker_id=1, container="c", at=now[0]))
        now[0] += timedelta(seconds=125)
        assert "2 min 5 s" in draw(view)

    @pytest.mark.parametrize("width", [20, 80, 300])
    def test_markup_and_control_characters_are_shown_as_text(self, width):
        drawn = board(
            started(1),
            WorkerStarted(worker_id=1, container="c"),
            WorkerOutput(worker_id=1, stream="stdout", line=HOSTILE),
            width=width,
        )
        assert all(line.isprintable() for line in drawn.splitlines())
        if width == 300:
            assert "[red]not[/red] [/] \ufffdevil" in drawn

    def test_live_table_is_bounded_for_many_workers(self, result):
        done = [
            WorkerDone(result=result.results[0].model_copy(update={"worker_id": n}))
            for n in range(1, 501)
        ]
        drawn = board(started(1000), *done, WorkerStarted(worker_id=600, container="c"))
        assert len(drawn.splitlines()) == MAX_FINISHED + 3
        assert "500 of 1000 done, 499 queued" in drawn

    def test_time_left_is_in_the_table_and_in_the_lines(self, result):
        begin = datetime.now(UTC) - timedelta(minutes=5)
        done = result.results[0].model_copy(update={"worker_id": 1, "started_at": begin})
        events = (
            started(3, slots=1).model_copy(update={"at": begin}),
            WorkerPreparing(worker_id=1, at=begin),
            WorkerDone(result=done, at=begin + timedelta(minutes=4)),
            WorkerStarted(worker_id=2, container="c", at=datetime.now(UTC)),
        )
        assert "1 of 3 done, 1 queued, about 8 min left" in board(*events)
        lines: list[str] = []
        view = PlainView(lines.append, clock=lambda: 0.0)
        for event in events:
            view(event)
        view.heartbeat()
        assert re.fullmatch(r"still running: 2 \(\d+ s, about 8 min left\)", lines[-1])

    def test_live_table_is_not_redrawn_for_each_line(self):
        stream = Terminal()
        with BoardView(stream) as view:
            view(started(1))
            before = stream.tell()
            for number in range(20_000):
                view(WorkerOutput(worker_id=1, stream="stdout", line=f"line {number}"))
            drawn = stream.tell() - before
        assert drawn < 100_000

    def test_notices_and_ports_are_printed_above_the_table(self):
        stream = Terminal()
        with BoardView(stream) as view:
            view(started(1))
            view(Notice(message="[bold]look"))
            view(WorkerStarted(worker_id=1, container="c", ports={3000: 49160}))
        assert "note: [bold]look" in stream.getvalue()
        assert "worker 1: http://127.0.0.1:49160 -> 3000" in stream.getvalue()

    def test_events_of_unknown_workers_are_ignored(self):
        assert board(WorkerOutput(worker_id=9, stream="stdout", line="x")) == "preparing the run\n"

    def test_closed_terminal_does_not_end_the_run(self):
        class Gone(Terminal):
            gone = False
            failed = 0

            def write(self, text: str) -> int:
                if self.gone:
                    self.failed += 1
                    raise OSError(5, "Input/output error")
                return super().write(text)

        stream = Gone()
        with BoardView(stream) as view:
            stream.gone = True
            view(started(1))
            view(Notice(message="still here"))
            assert stream.failed > 0
            view(WorkerStarted(worker_id=1, container="c"))
        assert "task 1" in draw(view)
        assert view.run().by_number[1].word == "running"

    def test_live_table_is_thread_safe(self, result):
        view = BoardView(Terminal())
        view(started(8))

        def work(number: int) -> None:
            view(WorkerStarted(worker_id=number, container="c", ports={1: 2}))
            for line in range(200):
                view(WorkerOutput(worker_id=number, stream="stdout", line=str(line)))
            done = result.results[0].model_copy(update={"worker_id": number})
            view(WorkerDone(result=done))

        with view:
            threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert sum(worker.word == "success" for worker in view.run().workers) == 8


class TestQuiet:
    def test_only_that_notifications_are_not_sent_is_shown(self, capfd):
        view = make_view(quiet=True)
        with view:
            view(Notice(message="something else"))
            view(Notice(message=f"{UNSENT} (the server answered with the status 404)"))
        assert "something else" not in (said := capfd.readouterr().err)
        assert f"{UNSENT} (the server answered with the status 404)" in said


class TestChoice:
    def test_view_depends_on_the_stream(self, monkeypatch):
        assert isinstance(make_view(quiet=True, stream=Terminal()), QuietView)
        assert isinstance(make_view(quiet=False, stream=Terminal()), BoardView)
        assert isinstance(make_view(quiet=False, stream=io.StringIO()), PlainView)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(make_view(quiet=False, stream=Terminal()), PlainView)


def connected(host: str, refused: str | None = None, **more) -> WorkerConnected:
    counts = {"connections": 12, "refusals": 3, "port": 443, **more}
    return WorkerConnected(worker_id=1, host=host, refused=refused, **counts)


def test_connections_of_a_running_worker_are_counted_in_the_table():
    now = WorkerStarted(worker_id=1, container="c")
    assert "NETWORK" not in board(started(), now)
    shown = board(started(), now, connected("a.example", refusals=0))
    assert "NETWORK" in shown
    assert " 12 " in shown
    assert "12, 3 refused" in board(started(), now, connected(HOSTILE, "name"), width=160)


def test_each_refused_host_has_one_line():
    lines: list[str] = []
    view = PlainView(lines.append)
    for event in (
        connected("a.example"), connected("b.example", "name", port=None),
        connected("b.example", "name", port=None), connected("c.example", "address"),
        connected("", "not-tls"), connected(HOSTILE, "name"),
    ):  # fmt: skip
        view(event)
    assert lines[:3] == [
        "worker 1 was refused b.example (name)",
        "worker 1 was refused c.example:443 (address)",
        "worker 1 was refused a host without a name:443 (not-tls)",
    ]
    assert lines[3].isprintable()
    for number in range(100):
        view(connected(f"h{number}.example", "name"))
    assert len(lines) == 20
