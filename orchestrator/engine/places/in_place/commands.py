"""The porter's short commands: what they do themselves, and what they ask the one that serves."""

import hashlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.engine.places.in_place.archive import LARGEST_ORDER
from orchestrator.engine.places.in_place.incoming import append, measure, unpack_part
from orchestrator.engine.places.in_place.records import (
    alone,
    checked_name,
    pack_part,
    print_changed,
    print_data,
    print_journal,
    print_usage,
    settle,
)

SHELL = "sh"
"""Name of the shell for the shim in a channel: executable, but not readable."""
_TURNS = 200
_SIGN = 10.0
"""Seconds between two signs of life of a command."""
_IDLE = 60.0
"""Seconds without a further command after which a command `talk` ends."""
_MOST_TALKS = 16
_SINCE = 19
"""Number of the field with a process's start, after the name in its `stat`."""


def send(root: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the porter that serves the place, and return its answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        _connect(connection, f"{root}/socket")
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as received:
            answer: dict[str, Any] = json.loads(received.readline(1 << 20))
    return answer


def _connect(connection: socket.socket, path: str) -> None:
    """Connect to the porter, which may have been started a moment ago."""
    for turn in range(_TURNS):
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            if turn == _TURNS - 1:
                raise
            time.sleep(0.05)
        else:
            return


def append_data(root: str, name: str, offset: str, size: str, sha256: str) -> None:
    """Add a piece to an archive that arrives."""
    append(root, checked_name(name), int(offset), read_data(size, sha256))
    print("{}", flush=True)


def read_data(size: str, sha256: str) -> bytes:
    """Return data of the standard input.

    Raises:
        ValueError: The data is too large, or not what was sent.
    """
    if int(size) > LARGEST_ORDER:
        raise ValueError("the data is too large")
    data = sys.stdin.buffer.read(int(size))
    if len(data) != int(size) or hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError("the data did not arrive completely")
    return data


def give_shell(root: str, step: str, size: str, sha256: str) -> None:
    """Write the program of a step's shim to the step's channel.

    No process of the step can read it, so none can trace PID 1 or write to its memory.
    """
    data = read_data(size, sha256)
    file = Path(json.loads(Path(root, "spec.json").read_text())["channels"], step, SHELL)
    # protection: no-step-traces-its-shim
    mode = 0o711
    with alone(root, step):
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as opened:
            os.fchmod(descriptor, mode)
            opened.write(data)
    print("{}", flush=True)


def perform(root: str, command: str, *arguments: str) -> int:
    """Perform a short command in the place, print the answer, and return the exit code."""
    try:
        if command in _PRINTED:
            _PRINTED[command](root, *arguments)
            return 0
        request: dict[str, Any] = {"command": command}
        if command == "order":
            request["order"] = json.loads(read_data(*arguments))
        elif command == "stop":
            request |= {"step": arguments[0], "signal": arguments[1]}
        elif command == "forget":
            request |= {"step": arguments[0], "run": int(arguments[1])}
        elif command in ("begin", "state"):
            request |= {"step": arguments[0]}
        elif command != "release":
            raise ValueError(f"unknown command: {command!r}")
        answer = send(root, request)
    except (ValueError, OSError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    return 1 if "error" in answer else 0


def talk(root: str) -> None:
    """Perform the commands on the standard input, one line each.

    A command that takes long prints empty lines between those of its answer, as a sign of life.
    Not every engine tells a command that its connection was cut. So one that gets no further
    command ends, and a new one ends the oldest if there are many.
    """
    # protection: commands-that-nobody-hears-end
    for process in _commands(root)[:-_MOST_TALKS]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    while select.select([0], [], [], _IDLE)[0] and (line := sys.stdin.buffer.readline()):
        over = threading.Event()
        teller = threading.Thread(target=_tell, args=(over,), daemon=True)
        teller.start()
        try:
            perform(root, *json.loads(line))
        finally:
            over.set()
            teller.join()


def _commands(root: str) -> list[int]:
    """Return the processes of all commands `talk` of the place, oldest first."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "cmdline").read_bytes().endswith(f"\0{root}\0talk\0".encode()):
                since = (path / "stat").read_text().rpartition(")")[2].split()[_SINCE]
                found.append((int(since), int(path.name)))
    return [process for _, process in sorted(found)]


def _tell(over: threading.Event) -> None:
    while not over.wait(_SIGN):
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


_PRINTED: dict[str, Callable[..., None]] = {
    "read": print_data,
    "journal": print_journal,
    "usage": print_usage,
    "changed": print_changed,
    "pack": pack_part,
    "settle": settle,
    "shell": give_shell,
    "append": append_data,
    "unpack": unpack_part,
    "measure": measure,
}
