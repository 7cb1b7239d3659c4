"""Write a worker's output to log files, and search it for progress and trouble."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

from orchestrator.agents.base import AgentProgress, ProgressReader
from orchestrator.base.events import Emit, Stream, WorkerOutput, WorkerProgress
from orchestrator.base.files.arrival_times import ArrivalRecorder
from orchestrator.base.text.redact import RedactedStream, Redactor
from orchestrator.base.text.sanitize import output_line
from orchestrator.config.settings.run import Triggers
from orchestrator.engine.interface.protocol import LogChunk
from orchestrator.sandbox.supervision.watchdog import OutputSigns

_LINE = 64 * 1024
"""Maximum number of bytes of an unfinished line that are held in memory."""
_READ = 100
"""Maximum number of lines in a chunk of output that are searched for progress; further lines are
skipped.
"""
_INTERVAL = 0.1
"""Minimum number of seconds between two lines of a worker that are shown to the user, so that a
flood of output needs little CPU time.
"""

_RECORDED = 1.0
"""Minimum number of seconds between two progress events of a worker."""
_RECORDED_SHARE = 0.01
"""Minimum time between two progress events of a worker, as a share of the container's running time.
"""


def log_files(directory: Path) -> tuple[Path, Path]:
    """Return the log files of a worker's stdout and stderr."""
    return directory / "stdout.log", directory / "stderr.log"


def stage_log(directory: Path, stage: str) -> Path:
    """Return the file for the output of a stage, stdout and stderr together."""
    return directory / f"{stage}.log"


def findings_file(log: Path) -> Path:
    """Return the file, beside a check's log, for the findings that the check wrote as SARIF."""
    return log.with_suffix(".sarif")


def stage_logs(directory: Path, stage: str) -> list[Path]:
    """Return the log file of a stage; for `check-*`, the existing log files of all checks."""
    if "*" not in stage:
        return [stage_log(directory, stage)]
    found = directory.glob(f"{stage}.log")
    return sorted(found, key=lambda path: (len(path.stem), path.stem))


class Output(Protocol):
    """What the supervisor of a container needs of the place for the container's output."""

    size: int
    """Bytes of output so far."""
    heard_at: float
    """Time of the latest output (monotonic clock)."""
    signs: OutputSigns

    @property
    def cost(self) -> float | None:
        """The latest cost that an agent reported, in USD."""

    @property
    def tokens(self) -> int | None:
        """The latest number of tokens that an agent reported."""

    @property
    def steps(self) -> int | None:
        """The latest number of steps that an agent reported, if its steps are limited."""

    def write(self, chunk: LogChunk) -> None:
        """Take a chunk of output."""

    def tell(self, *, now: bool = False) -> None:
        """Emit events for the latest line and progress: at a limited rate, or always with `now`."""

    def restart(self) -> None:
        """Forget all output so far, because it will be received again from the first byte."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How the output of a container is stored."""

    limit: int
    """Maximum size in bytes of the stored output."""
    redactor: Redactor = field(default_factory=Redactor)
    triggers: Triggers = field(default_factory=Triggers)
    stage: str | None = None
    """Stage whose commands print the output; None for the task itself."""


class WorkerLog:
    """Stores and interprets a container's output, chunk by chunk."""

    def __init__(
        self,
        directory: Path,
        worker_id: int,
        options: LogOptions,
        *,
        emit: Emit,
        new_reader: Callable[[], ProgressReader],
    ) -> None:
        self.stdout, self.stderr = log_files(directory)
        if options.stage is not None:
            # One file for both streams, in order of arrival.
            self.stdout = self.stderr = stage_log(directory, options.stage)
        self.heard_at = time.monotonic()
        """Time of the latest output (monotonic clock)."""
        self.cost: float | None = None
        """The latest cost that the agent reported, in USD."""
        self.tokens: int | None = None
        self.steps: int | None = None
        """The latest reported number of steps, if the agent's steps are limited."""
        self.failure: OSError | None = None
        """Reason why the log on disk is incomplete; None if it is complete."""
        self._pending: tuple[Stream, bytes] | None = None
        self._told_at = 0.0
        self._lock = threading.Lock()
        self._options = options
        self._worker_id = worker_id
        self._emit = emit
        self._new_reader = new_reader
        # A task that another process started goes on; the commands of a stage start again.
        self._open(goes_on=options.stage is None)

    def _open(self, *, goes_on: bool) -> None:
        self.size = 0
        """Bytes of output so far."""
        self._room = self._options.limit
        self._read_progress = self._new_reader()
        self._progress: tuple[float | None, int | None] | None = None
        """The latest cost and number of steps."""
        self._recorded: tuple[float | None, int | None] | None = None
        self._opened_at = time.monotonic()
        self._recorded_at = self._opened_at - _RECORDED - 1
        self.signs = OutputSigns(self._options.triggers)
        """Warning signs in the output."""
        # A process that resumes the run receives all output again that the engine still has. The
        # earlier log is kept until the new one is at least as long.
        received = {path: _put_aside(path) for path in (self.stdout, self.stderr)}
        times = {
            path: ArrivalRecorder(path, known=size if goes_on else None)
            for path, size in received.items()
        }
        self._times = {"stdout": times[self.stdout], "stderr": times[self.stderr]}
        stdout = self.stdout.open("wb", 0)
        stderr = stdout if self.stderr == self.stdout else self.stderr.open("wb", 0)
        self._files = {"stdout": stdout, "stderr": stderr}
        self._partial: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
        self._redacted: dict[Stream, RedactedStream] = {
            "stdout": self._options.redactor.stream(),
            "stderr": self._options.redactor.stream(),
        }

    def __enter__(self) -> "WorkerLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()
        for file in self._files.values():
            file.close()
        for path in (self.stdout, self.stderr):
            if _size(path) >= _size(_earlier(path)):
                _earlier(path).unlink(missing_ok=True)

    def restart(self) -> None:
        """Forget all output so far, because it will be received again from the first byte."""
        self.finish()
        for file in self._files.values():
            file.close()
        self._open(goes_on=True)

    def finish(self) -> None:
        """Process the last bytes: an unfinished line, or bytes held back as a possible secret."""
        for stream, redacted in self._redacted.items():
            # protection: secrets-at-end-of-log-are-redacted
            self._take(stream, redacted.flush())
        for stream, rest in self._partial.items():
            if rest.strip():
                self._pending = (stream, rest)
        self._partial = {"stdout": b"", "stderr": b""}
        self.tell(now=True)

    def write(self, chunk: LogChunk) -> None:
        """Store a chunk of output, and search it for progress and signs of trouble."""
        self.size += len(chunk.data)
        self.heard_at = time.monotonic()
        # protection: secrets-are-redacted-from-log
        self._take(chunk.stream, self._redacted[chunk.stream].feed(chunk.data))

    def _take(self, stream: Stream, data: bytes) -> None:
        # protection: log-on-disk-limited
        kept = data[: self._room]
        self._room -= len(kept)
        if self.failure is None and kept:
            file = self._files[stream]
            try:
                begin = file.tell()
                # Before the bytes, so that no reader finds bytes without their time.
                self._times[stream].note(begin, begin + len(kept))
                file.write(kept)
            except OSError as error:
                # After a write error, as on a full disk, reading must continue, or the container
                # would block on its output.
                self.failure = error
        self.signs.feed(stream, data)
        head, newline, tail = data.rpartition(b"\n")
        started = self._partial[stream]
        if not newline:
            # protection: length-of-log-lines-limited
            self._partial[stream] = (started + tail)[:_LINE]
            return
        self._partial[stream] = tail[:_LINE]
        lines = (started + head).rsplit(b"\n", _READ)
        with self._lock:
            self._pending = (stream, lines[-1])
        if stream == "stdout":
            self._note_progress(lines)
        self.tell()

    def tell(self, *, now: bool = False) -> None:
        """Emit events for the latest line and progress: at a limited rate, or always with `now`."""
        self._tell_progress(now=now)
        with self._lock:
            if self._pending is None or not (now or time.monotonic() - self._told_at > _INTERVAL):
                return
            stream, raw = self._pending
            self._pending = None
            self._told_at = time.monotonic()
        # protection: lines-are-sanitised
        line = output_line(raw[:4000].decode("utf-8", "replace").strip())
        if line:
            self._emit(WorkerOutput(worker_id=self._worker_id, stream=stream, line=line))

    def _tell_progress(self, *, now: bool) -> None:
        """Emit an event for the agent's cost and steps: at a limited rate, or always with `now`.

        Each event is recorded on disk. The pause between two events grows with the running time, so
        that a worker's record stays small whatever it prints.
        """
        with self._lock:
            age = time.monotonic() - self._opened_at
            # protection: rate-of-recorded-progress-falls-with-time
            wait = max(_RECORDED, age * _RECORDED_SHARE)
            since = time.monotonic() - self._recorded_at
            told = self._progress
            # protection: rate-of-recorded-progress-limited
            if told is None or told == self._recorded or not (now or since > wait):
                return
            self._recorded, self._recorded_at = told, time.monotonic()
            cost, steps = told
        self._emit(WorkerProgress(worker_id=self._worker_id, cost=cost, steps=steps))

    def _note_progress(self, lines: list[bytes]) -> None:
        """Read the agent's progress from the newest lines of a chunk, up to a limit."""
        progress: AgentProgress | None = None
        for line in lines[-_READ:]:
            if line and len(line) < _LINE:
                progress = self._read_progress(line.decode("utf-8", "replace")) or progress
        if progress is None:
            return
        if progress.cost is not None:
            self.cost = progress.cost
        if progress.tokens is not None:
            self.tokens = progress.tokens
        if progress.steps is not None and progress.bounded:
            self.steps = progress.steps
        with self._lock:
            cost, steps = self._progress or (None, None)
            self._progress = (
                cost if progress.cost is None else progress.cost,
                steps if progress.steps is None else progress.steps,
            )


def _put_aside(path: Path) -> int:
    """Rename an earlier log, unless an even earlier one is longer; return the longer one's size."""
    size, longest = _size(path), _size(_earlier(path))
    # The process that received everything again may have been killed, too.
    if path.is_file() and size >= longest:
        path.replace(_earlier(path))
    return max(size, longest)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _earlier(path: Path) -> Path:
    return path.with_name(f"{path.name}.before-resume")
