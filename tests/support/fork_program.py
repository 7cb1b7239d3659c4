"""A program `orchestrator` for shell sessions, whose commands are forks (`tests.support.forks`)."""

import json
import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.forks import Fork, can_fork

_PROGRAM = f"""#!{sys.executable} -IS
import _socket, array, json, os, sys
channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
channel.connect(NAME)
said = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
streams = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
channel.sendmsg([len(said).to_bytes(4, "big")], [streams])
channel.sendall(said)
code = channel.recv(16)
if not code:
    os.execv({sys.executable!r}, [{sys.executable!r}, "-P", "-m", MODULE, *sys.argv[1:]])
sys.exit(int(code))
"""
"""Passes its arguments, directory, environment and streams to the tests, and exits like the fork.

If a fork would behave differently, it is replaced by the real program.
"""


@contextmanager
def fork_program(folder: Path, module: str = "orchestrator") -> Iterator[None]:
    """Write a program that runs a module into a folder, and serve it until this is left."""
    # An abstract address, because a path may be too long for a socket.
    name = b"\0orchestrator-tests-" + secrets.token_hex(8).encode()
    folder.mkdir()
    program = _PROGRAM.replace("NAME", repr(name)).replace("MODULE", repr(module))
    (folder / "orchestrator").write_text(program)
    (folder / "orchestrator").chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(name)
        listening.listen()
        server = threading.Thread(target=_serve, args=(listening, module))
        server.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            server.join()


def _serve(listening: socket.socket, module: str) -> None:
    while True:
        try:
            caller, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_carry_out, args=(caller, module), daemon=True).start()


def _carry_out(caller: socket.socket, module: str) -> None:
    """Run one command as a fork, and send its exit code; send nothing if a fork cannot be used."""
    with caller:
        head, streams, _, _ = socket.recv_fds(caller, 4, 3)
        try:
            said = _received(caller, int.from_bytes(head, "big"))
            arguments, cwd, env = json.loads(said)
            if not can_fork(env, {}):
                return
            given, out, err = streams
            fork = Fork(
                module, arguments, cwd=Path(cwd), env=env, stdin=given, stdout=out, stderr=err
            )
        finally:
            for stream in streams:
                os.close(stream)
        code = fork.wait()
        with suppress(ConnectionError):  # the program was killed
            caller.sendall(str(code if code >= 0 else 128 - code).encode())


def _received(caller: socket.socket, size: int) -> bytes:
    said = b""
    while len(said) < size:
        piece = caller.recv(size - len(said))
        assert piece, "the program ended before it sent its request"
        said += piece
    return said
