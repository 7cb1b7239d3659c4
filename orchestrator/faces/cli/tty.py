"""Connect the user's terminal to a process in a container, and restore the terminal afterwards."""

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from orchestrator.base.errors import OrchestratorError
from orchestrator.engine.interface.protocol import InnerProcess, TerminalSize
from orchestrator.faces.cli.signals import SIGNALS, ignore_signal

_CHUNK = 4096
_PATIENCE = 2.0
"""Maximum number of seconds to wait for the end of the thread that reads the keyboard."""
_END = b"\0"
# Resets modes that the process may have changed: attributes, alternate screen, mouse, bracketed
# paste, and the cursor.
_RESET = b"\x1b[0m\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h"


def terminal_size() -> TerminalSize:
    """Return the size of the terminal on stdout."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return TerminalSize(rows=rows, columns=columns)


def converse(process: InnerProcess) -> int:
    """Pass the user's input to a process and its output back; return the process's exit code.

    Output is passed unchanged, so the process can control the terminal. Must be called inside
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
            # Unblocks a write that waits for the process to read input.
            process.close()
            # An engine that hangs must not block the terminal.
            keyboard.join(_PATIENCE)


def _pass_keys(process: InnerProcess, woken: int) -> None:
    keys = sys.stdin.fileno()
    with suppress(OrchestratorError, OSError):
        while True:
            ready, _, _ = select.select([keys, woken], [], [])
            if woken in ready:
                signals = os.read(woken, _CHUNK)
                if _END in signals:
                    return
                # Other signals, which end this process, are written here too.
                if signal.SIGWINCH in signals:
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
            # TCSAFLUSH discards pending input: the terminal's answers to queries of the process
            # must not be read as commands of the user.
            termios.tcsetattr(keys, termios.TCSAFLUSH, before)


@contextmanager
def unwinding(signals: Iterable[signal.Signals] = SIGNALS) -> Iterator[None]:
    """Turn signals that would kill this process into SystemExit, so that cleanup code runs."""
    before = {number: signal.signal(number, _end) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _window() -> Iterator[tuple[int, int]]:
    """Yield a pipe that receives a byte whenever the size of the terminal changes."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    wakeup = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    before = signal.signal(signal.SIGWINCH, ignore_signal)
    try:
        yield woken, wake
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGWINCH, before)
        os.close(woken)
        os.close(wake)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)
