"""`orchestrator logs` and `orchestrator events`."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Protocol, TextIO

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Stream
from orchestrator.base.files.arrival_times import ArrivalTimes
from orchestrator.base.files.tail import LineTail, Tail
from orchestrator.base.text.sanitize import output_lines
from orchestrator.faces.cli.options import with_options
from orchestrator.faces.cli.output.ci import in_ci
from orchestrator.faces.cli.output.messages import put, show_json, tell
from orchestrator.faces.cli.output.streams import end_with_reader
from orchestrator.faces.cli.run_arguments import Follow, Number, RunOption, follow, open_run
from orchestrator.sandbox.supervision.output import stage_logs
from orchestrator.state.record.history import EVENTS, LONGEST_EVENT, RunHistory, attempts
from orchestrator.state.record.states import WorkerState

_LONGEST = 64 * 1024
"""Maximum size of a line in bytes; longer lines are split."""

Raw = Annotated[
    bool,
    typer.Option(
        "--raw", help="Print the output of one worker unchanged, unless stdout is a terminal."
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Allow `--raw` even if a CI system reads the output.")
]
Setup = Annotated[
    bool, typer.Option("--setup", help="Print the setup commands' output in place of the task's.")
]
Teardown = Annotated[
    bool,
    typer.Option("--teardown", help="Print the teardown commands' output in place of the task's."),
]
Checks = Annotated[
    bool, typer.Option("--checks", help="Print the checks' output in place of the task's.")
]
Timestamps = Annotated[
    bool,
    typer.Option(
        "--timestamps",
        "-t",
        help="Print the time in UTC at which each line arrived; `-` where none was recorded.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Options of `orchestrator logs`: which output is printed, and how."""

    raw: Raw = False
    force: Force = False
    setup: Setup = False
    teardown: Teardown = False
    checks: Checks = False
    timestamps: Timestamps = False


@with_options
def logs(
    options: LogOptions, worker: Number = None, run: RunOption = None, follow_: Follow = False
) -> None:
    """Print the output of workers.

    With several workers, every line goes to stdout, after the number of its worker. With one
    worker, its stdout goes to stdout and its stderr to stderr. Terminal control sequences are made
    harmless.
    """
    end_with_reader()
    asked = {"setup": options.setup, "teardown": options.teardown, "check-*": options.checks}
    stages = [name for name, is_asked in asked.items() if is_asked]
    if options.raw and worker is None:
        raise ConfigError(
            "`--raw` requires the number of a worker",
            key="option.incomplete",
            hint="name the worker: `orchestrator logs --raw 1 > FILE`",
        )
    # protection: logs-raw-refused-in-job
    if options.raw and not options.force and in_ci(os.environ):
        raise ConfigError(
            "`--raw` is refused in a CI job: the output may contain commands for the CI system",
            key="output.unsafe",
            hint="remove `--raw`, or add `--force` if the bytes do not reach the job's log",
        )
    if options.force and not options.raw:
        raise ConfigError("`--force` requires `--raw`", key="option.incomplete")
    if options.raw and options.timestamps:
        raise ConfigError(
            "`--raw` prints the output unchanged, and `--timestamps` adds to it",
            key="option.conflict",
            hint="remove one of them",
        )
    with open_run(run, worker=worker) as history, ExitStack() as stack:
        numbers = list(history.workers) if worker is None else [worker]
        chosen = list(_logs(history, numbers, stages))
        sources = [_source(log, options, alone=bool(worker)) for log in chosen]
        for source in sources:
            stack.callback(source.close)
        if follow_:
            _follow(history, sources, worker)
        else:
            _show(sources)
        if worker is not None and not any(log.path.is_file() for log in chosen):
            tell(f"worker {worker} {history.sentence(worker)}; there is no output to print")


def events(run: RunOption = None, follow_: Follow = False) -> None:
    """Print the events of a run, one JSON object per line."""
    end_with_reader()
    with open_run(run) as history:
        path = history.directory.path / EVENTS
        with closing(LineTail(path, longest=LONGEST_EVENT)) as tail:

            def step() -> bool:
                written = tail.read()
                for line in written.splitlines():
                    try:
                        event = json.loads(line)
                    except ValueError:
                        # A run that was killed may leave an incomplete line.
                        continue
                    show_json(json.dumps(event))
                return bool(written)

            follow(step, is_live=lambda: follow_ and history.directory.is_live())
        if follow_:
            history.result()


@dataclass(frozen=True)
class _Log:
    """Path of a log file, with the worker, attempt and stream that it belongs to."""

    path: Path
    label: str
    stream: Stream


def _logs(history: RunHistory, numbers: list[int], stages: list[str]) -> Iterator[_Log]:
    """Yield the logs of the stages; without stages, those of the tasks."""
    for number in numbers:
        for attempt, directory in attempts(history.directory, number):
            label = f"W{number}" if attempt is None else f"W{number}.{attempt}"
            for path in (path for stage in stages for path in stage_logs(directory, stage)):
                yield _Log(path, f"{label} {path.stem}", "stdout")
            if not stages:
                yield _Log(directory / "stdout.log", label, "stdout")
                yield _Log(directory / "stderr.log", label, "stderr")


class _Source(Protocol):
    """A log file that is printed as it grows."""

    def step(self) -> bool:
        """Print the lines that were added since the last call; return whether there were any."""

    def finish(self) -> None:
        """Print the end of the log, after the worker has ended."""

    def close(self) -> None:
        """Close the log file."""


def _source(log: _Log, options: LogOptions, *, alone: bool) -> _Source:
    out = sys.stderr if alone and log.stream == "stderr" else sys.stdout
    if options.raw and not out.isatty():
        return _RawSource(log, out)
    mark = "" if log.stream == "stdout" else " err"
    prefix = "" if alone else f"[{log.label}{mark}] "
    return _LineSource(log, out, prefix=prefix, is_timed=options.timestamps)


class _RawSource:
    """Prints a log unchanged."""

    def __init__(self, log: _Log, out: TextIO) -> None:
        self._tail = Tail(log.path)
        self._out = out.buffer

    def step(self) -> bool:
        piece = self._tail.read()
        self._out.write(piece)
        self._out.flush()
        return bool(piece)

    def finish(self) -> None:
        return

    def close(self) -> None:
        self._tail.close()


class _LineSource:
    """Prints a log as lines that are safe for a terminal, each with a prefix."""

    def __init__(self, log: _Log, out: TextIO, *, prefix: str, is_timed: bool) -> None:
        self._log = log.path
        self._tail = LineTail(log.path, longest=_LONGEST)
        self._out = out
        self._prefix = prefix
        self._is_timed = is_timed

    def step(self) -> bool:
        return self._show(self._tail.read())

    def finish(self) -> None:
        self._show(self._tail.rest())

    def close(self) -> None:
        self._tail.close()

    def _show(self, printed: bytes) -> bool:
        if not printed:
            return False
        if self._is_timed:
            times, begin = ArrivalTimes.of(self._log), self._tail.begin
            for line in printed[:-1].split(b"\n"):
                at = times.at(begin)
                self._put(line + b"\n", f"{self._prefix}{_stamp(at)} ")
                begin += len(line) + 1
        else:
            self._put(printed, self._prefix)
        return True

    def _put(self, printed: bytes, prefix: str) -> None:
        text = output_lines(printed.decode("utf-8", "replace"))[:-1]
        # protection: each-part-of-line-has-its-prefix
        put(prefix + text.replace("\n", "\n" + prefix), self._out)


def _stamp(at: datetime | None) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}" if at else f"{'-':20}"


def _show(sources: list[_Source]) -> None:
    for source in sources:
        while source.step():
            pass
        source.finish()


def _follow(history: RunHistory, sources: list[_Source], worker: int | None) -> None:
    def is_live() -> bool:
        history.read_all()
        done = worker is not None and history.workers[worker].state is WorkerState.DONE
        return history.directory.is_live() and not done

    def step() -> bool:
        # One step of each log in turn, so that a large log does not delay the others.
        return sum(source.step() for source in sources) > 0

    follow(step, is_live=is_live)
    for source in sources:
        source.finish()
    if worker is None or history.workers[worker].state is not WorkerState.DONE:
        history.result()
