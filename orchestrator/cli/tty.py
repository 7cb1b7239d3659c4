"""Connect this terminal with a process that has one of its own; give it back as it was."""

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from orchestrator.engine.protocol import InnerProcess, TerminalSize
from orchestrator.errors import OrchestratorError

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CHUNK = 4096
_PATIENCE = 2.0
"""Seconds."""
_END = b"\0"
# The process may have switched them on: attributes, the other screen, the mouse, pasting in
# brackets; off: the cursor.
_RESET = b"\x1b[0m\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h"


def terminal_size() -> TerminalSize:
    """Return the size of this terminal."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return TerminalSize(rows=rows, columns=columns)


def converse(process: InnerProcess) -> int:
    """Pass keys in and output out until the process ends, and give its exit code.

    Nothing is made harmless on the way: what the process says steers this terminal. To be called
    `unwinding`.
    """
    with _window() as (woken, wake), _raw(sys.stdin.fileno(), sys.stdout.fileno()):
        keyboard = threading.Thread(
            target=_pass_keys, args=(process, woken), name="keyboard", daemon=True
        )
        keyboard.start()
        try:
            for chunk in process.output():
                sys.stdout.buffer.write(chunk.data)
                sys.stdout.buffer.flush()
            return process.wait()
        finally:
            os.write(wake, _END)
            # Whoever waits for it to take keys need not any longer.
            process.close()
            # An engine that hangs must not keep the terminal.
            keyboard.join(_PATIENCE)


def _pass_keys(process: InnerProcess, woken: int) -> None:
    keys = sys.stdin.fileno()
    with suppress(OrchestratorError, OSError):
        while True:
            ready, _, _ = select.select([keys, woken], [], [])
            if woken in ready:
                said = os.read(woken, _CHUNK)
                if _END in said:
                    return
                # A signal that ends us comes here too: the engine is not to be asked for more.
                if signal.SIGWINCH in said:
                    process.resize(terminal_size())
            elif not (data := os.read(keys, _CHUNK)):
                return
            else:
                process.write(data)


@contextmanager
def _raw(keys: int, screen: int) -> Iterator[None]:
    before = termios.tcgetattr(keys)
    try:
        tty.setraw(keys)
        yield
    finally:
        with suppress(OSError):
            os.write(screen, _RESET)
        with suppress(termios.error):
            # What the terminal answered to questions of the process is no command of the user's:
            # it is thrown away unread.
            termios.tcsetattr(keys, termios.TCSAFLUSH, before)


@contextmanager
def unwinding() -> Iterator[None]:
    """Have the signals that end us unwind us, so that what was begun is put in order."""
    before = {number: signal.signal(number, _end) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _window() -> Iterator[tuple[int, int]]:
    """Give the ends of a pipe that is written to when the window's size changes."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    before = signal.signal(signal.SIGWINCH, _nothing)
    wakeup = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield woken, wake
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGWINCH, before)
        os.close(woken)
        os.close(wake)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    for other in _ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Be a handler: with one that is Python's own, the wakeup descriptor is written to."""
