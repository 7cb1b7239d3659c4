"""`orchestrator watch`: show the progress of a run."""

import sys
from contextlib import ExitStack
from functools import partial

import typer

from orchestrator.base.events import Emit, Stream, WorkerOutput
from orchestrator.base.files.tail import LineTail, end_of
from orchestrator.base.text.sanitize import last_output_line
from orchestrator.engine import engine_of_run
from orchestrator.faces.cli.output.formats import terminal_width
from orchestrator.faces.cli.output.messages import tell
from orchestrator.faces.cli.output.overview import timeline
from orchestrator.faces.cli.output.views import is_redrawn, make_view
from orchestrator.faces.cli.run_arguments import Run, follow, open_run, show_ending
from orchestrator.network.gateway.log import parse_records
from orchestrator.runs.reports.model import read_run
from orchestrator.sandbox.network.network_log import NETWORK_LOG, ConnectionTally
from orchestrator.state.record.history import RunHistory
from orchestrator.state.record.states import WorkerState
from orchestrator.state.record.usage_monitor import UsageMonitor
from orchestrator.state.record.worker_view import TALKING

_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
_STAGES = frozenset({WorkerState.SETUP, WorkerState.TEARDOWN})
_BEFORE = frozenset({WorkerState.QUEUED, WorkerState.PREPARING, WorkerState.RETRYING})
_LONGEST_RECORD = 4096
"""Maximum number of bytes of a line of a network log."""


def watch(run: Run = None) -> None:
    """Show the progress of a run, then its timeline and result; exit with its exit code.

    Without a terminal, events are printed as plain lines.
    """
    with open_run(run) as history:
        _show(history)
        if len(history.workers) > 1 and (report := read_run(history.directory)):
            tell(f"\n{timeline(report, width=terminal_width())}\n")
        raise typer.Exit(show_ending(history))


def _show(history: RunHistory) -> None:
    view = make_view(quiet=False)
    lines, connections = _LastLines(history), _Connections(history)

    def step() -> bool:
        events = history.read()
        for event in events:
            view(event)
        lines.tell(view)
        connections.tell(view)
        return bool(events)

    with ExitStack() as stack:
        stack.callback(connections.close)
        stack.enter_context(view)
        if is_redrawn(sys.stderr) and history.directory.is_live():
            connect = partial(engine_of_run, history.record.engine_used)
            stack.enter_context(UsageMonitor(history, view, connect=connect))
        follow(step, is_live=history.directory.is_live)


class _LastLines:
    """Reads the last output line of each running worker, and emits an event when it changes."""

    def __init__(self, history: RunHistory) -> None:
        self._history = history
        self._sizes: dict[tuple[int, str], int] = {}

    def tell(self, emit: Emit) -> None:
        for number, worker in self._history.workers.items():
            if worker.state in TALKING:
                for stream in _STREAMS:
                    self._tell(number, stream, f"{stream}.log", emit)
            elif worker.state in _STAGES:
                self._tell(number, "stdout", f"{worker.state}.log", emit)

    def _tell(self, number: int, stream: Stream, name: str, emit: Emit) -> None:
        path = self._history.directory.worker(number) / name
        try:
            size = path.stat().st_size
        except OSError:
            return
        if self._sizes.get((number, name), 0) == size:
            return
        self._sizes[number, name] = size
        line = last_output_line(end_of(path).decode("utf-8", "replace"))
        if line:
            emit(WorkerOutput(worker_id=number, stream=stream, line=line))


class _Connections:
    """Reads the network logs of the workers that run, and emits events about new connections."""

    def __init__(self, history: RunHistory) -> None:
        self._history = history
        self._tails: dict[int, tuple[LineTail, ConnectionTally]] = {}

    def tell(self, emit: Emit) -> None:
        for number, worker in self._history.workers.items():
            ended = worker.state == WorkerState.DONE
            if worker.state not in _BEFORE and (not ended or number in self._tails):
                self._tell(number, emit)
            if ended and number in self._tails:
                self._tails.pop(number)[0].close()

    def close(self) -> None:
        """Close the logs."""
        for tail, _ in self._tails.values():
            tail.close()

    def _tell(self, number: int, emit: Emit) -> None:
        path = self._history.directory.worker(number) / NETWORK_LOG
        if number not in self._tails:
            new = LineTail(path, longest=_LONGEST_RECORD), ConnectionTally(number)
            self._tails[number] = new
        tail, tally = self._tails[number]
        for record in parse_records(tail.read().splitlines()):
            event = tally.add(record)
            if event is not None:
                emit(event)
