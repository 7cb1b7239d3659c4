"""Stop a run gracefully on SIGINT, SIGTERM and SIGHUP."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import typer

from orchestrator.base.errors import OrchestratorError
from orchestrator.faces.cli.output.messages import tell_failure

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_END = 0
Result = TypeVar("Result")


def ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing. Without a handler in Python, Python would not write to the wakeup descriptor."""


class Interruption:
    """Calls `stop` at a signal, in a thread because code in a signal handler could deadlock."""

    def __init__(self, stop: Callable[[bool], None]) -> None:
        """Prepare to handle signals; the context manager installs the handlers.

        Args:
            stop: Called with False at the first signal, with True at every later one.
        """
        self._stop = stop
        self._before: dict[signal.Signals, Any] = {}
        self._first: int | None = None
        self._read, self._write = os.pipe()
        self._watcher = threading.Thread(target=self._watch, name="signals", daemon=True)

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of a program that the first signal ended; None without a signal."""
        return None if self._first is None else 128 + self._first

    def __enter__(self) -> "Interruption":
        os.set_blocking(self._write, False)
        # Before the handlers are installed: a signal between the two steps would be lost.
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in SIGNALS:
            # Ignored on purpose, as under nohup or in the background of a script.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, ignore_signal)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.write(self._write, bytes([_END]))
        self._watcher.join()
        os.close(self._read)
        os.close(self._write)

    def _watch(self) -> None:
        while (number := os.read(self._read, 1)[0]) != _END:
            if number in SIGNALS:
                again = self._first is not None
                self._first = self._first or number
                self._stop(again)


def run_interruptibly(
    work: Callable[[], Result], stop: Callable[[bool], None], *, keeps_result: bool = False
) -> Result:
    """Return the result of `work`; call `stop` at a signal, and exit with the signal's code.

    Args:
        work: Raises an OrchestratorError if it is stopped.
        stop: Called with False at the first signal, with True at every later one.
        keeps_result: Whether work that was done despite the signal counts, as a merge that cannot
            be stopped any more.

    Raises:
        typer.Exit: There was a signal.
    """
    with Interruption(stop) as interruption:
        try:
            result = work()
        except OrchestratorError as error:
            if interruption.exit_code is None:
                raise
            tell_failure(error)
            raise typer.Exit(interruption.exit_code) from error
    if interruption.exit_code is not None and not keeps_result:
        raise typer.Exit(interruption.exit_code)
    return result
