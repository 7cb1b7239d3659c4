"""Start Python programs quickly, as forks of a process that has imported the product.

The import takes half a second of CPU time, and the tests start the program hundreds of times. A
fork has its own process id, working directory, environment and streams, runs a module as
`python -m` does, and is a child of the process that was forked.
"""

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).resolve().parents[2]
_MOST = 16 << 20
STARTED_WITH = ("LC_", "LANG", "PYTHON")
"""Variables that the interpreter reads only when it starts."""


def can_fork(env: Mapping[str, str], streams: Mapping[str, object]) -> bool:
    """Return whether a fork behaves like a process started with these arguments."""
    if streams.keys() - {"stdout", "stderr", "start_new_session"}:
        return False
    names = {name for name in {*env, *os.environ} if name.startswith(STARTED_WITH)}
    return all(env.get(name) == os.environ.get(name) for name in names - {"PYTHONPATH"})


def run(
    module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end: as a fork, or where that would not do, as a new process."""
    command = [sys.executable, "-m", module, *arguments]
    if not can_fork(env, {}):
        return subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, check=False
        )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    fork = Fork(module, arguments, cwd=cwd, env=env, **pipes)
    out, err = (said.decode() if said else "" for said in fork.communicate())
    assert fork.returncode is not None
    return subprocess.CompletedProcess(command, fork.returncode, out, err)


class Fork:
    """A forked process with the used part of the interface of `subprocess.Popen[bytes]`."""

    def __init__(
        self, module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str],
        stdin: int | None = None, stdout: Any = None, stderr: Any = None,
        start_new_session: bool = False,
    ) -> None:  # fmt: skip
        """Start a module; without a descriptor as `stdin`, it has no input."""
        self.args = [sys.executable, "-m", module, *arguments]
        self.returncode: int | None = None
        request = {
            "module": module, "arguments": arguments, "cwd": str(cwd), "env": dict(env),
            "session": start_new_session,
        }  # fmt: skip
        ends, self.stdout, out = [], *_stream(stdout, 1)
        ends += [out] if self.stdout is not None else []
        self.stderr, err = _stream(stderr, 2, out)
        ends += [err] if self.stderr is not None else []
        self._ended, told = os.pipe()
        given = os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin)
        try:
            self.pid = _server().fork(request, (given, out, err, told))
        finally:
            for end in (*ends, told, given):
                os.close(end)

    def poll(self) -> int | None:
        """Return the exit code, or None if the process is running."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return the exit code."""
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            said = os.read(self._ended, 64)
            os.close(self._ended)
            self.returncode = int(said) if said else -signal.SIGKILL
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes | None, bytes | None]:
        """Read both streams to their end, and wait for the end of the process."""
        until = None if timeout is None else time.monotonic() + timeout
        # Ignore streams that the test has closed, as `subprocess` does.
        streams = {one.fileno(): one for one in self._streams if one and not one.closed}
        places = [one.fileno() if one and not one.closed else None for one in self._streams]
        read = {number: bytearray() for number in streams}
        left = set(streams)
        while left:
            rest = None if until is None else max(0.0, until - time.monotonic())
            ready, _, _ = select.select(left, [], [], rest)
            if not ready:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            for number in ready:
                # `read1` also returns bytes that were already in the stream's buffer.
                piece = streams[number].read1(65536)  # type: ignore[attr-defined]
                read[number] += piece
                left -= set() if piece else {number}
        self.wait(None if until is None else max(0.1, until - time.monotonic()))
        said = [None if place is None else bytes(read[place]) for place in places]
        for one in streams.values():
            one.close()
        return said[0], said[1]

    @property
    def _streams(self) -> tuple[IO[bytes] | None, IO[bytes] | None]:
        return self.stdout, self.stderr

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        # The server waits for the process first, so that it may be gone already.
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> "Fork":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            if stream is not None:
                stream.close()
        self.wait()


def _stream(wanted: Any, ours: int, out: int = -1) -> tuple[IO[bytes] | None, int]:
    """Return both ends of a stream: this process's and the new process's."""
    if wanted == subprocess.PIPE:
        read, write = os.pipe()
        return open(read, "rb"), write  # noqa: PTH123
    if wanted == subprocess.STDOUT:
        return None, out
    if wanted == subprocess.DEVNULL:
        return None, _devnull()
    return None, ours if wanted is None else wanted if isinstance(wanted, int) else wanted.fileno()


def _devnull() -> int:
    if "null" not in _kept:
        _kept["null"] = os.open(os.devnull, os.O_WRONLY)
    return int(_kept["null"])


_kept: dict[str, Any] = {}


def _server() -> "_Client":
    """Return the process that is forked, started on first use."""
    if _kept.get("pid") != os.getpid():
        _kept.update(pid=os.getpid(), client=_Client())
    client = _kept["client"]
    assert isinstance(client, _Client)
    return client


class _Client:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for one in (ours, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._socket = ours
        self._one_at_a_time = threading.Lock()
        atexit.register(self.close)

    def fork(self, request: Mapping[str, object], streams: Sequence[int]) -> int:
        """Start a process, and return its id."""
        with self._one_at_a_time:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            return int(self._socket.recv(64))

    def close(self) -> None:
        """End the server; its forks continue."""
        self._socket.close()
        self._process.wait()


# The functions below run in the server process and in its forks.


def _serve(requests: socket.socket) -> Mapping[str, Any] | None:
    """Fork for each request; return the request in the fork, and None at the end."""
    children: dict[int, tuple[int, int]] = {}
    ready = select.poll()
    ready.register(requests, select.POLLIN)
    while True:
        for number, _ in ready.poll():
            if number in children:
                pid, told = children.pop(number)
                ready.unregister(number)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(OSError):
                    os.write(told, str(code).encode())
                os.close(told)
                os.close(number)
                continue
            said, streams, _, _ = socket.recv_fds(requests, _MOST, 4)
            if not said:
                return None
            request = json.loads(said)
            pid = os.fork()
            if not pid:
                _become(request, streams)
                return request  # type: ignore[no-any-return]
            for stream in streams[:3]:
                os.close(stream)
            watched = os.pidfd_open(pid)
            children[watched] = pid, streams[3]
            ready.register(watched, select.POLLIN)
            requests.send(str(pid).encode())


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Set up the fork as `python -m` would set up a new process."""
    if request["session"]:
        os.setsid()
    for place, stream in enumerate(streams[:3]):
        os.dup2(stream, place)
    os.closerange(3, 4096)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    more = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [request["cwd"], *filter(None, more)]
    sys.orig_argv[:] = [sys.executable, "-m", request["module"], *request["arguments"]]
    sys.argv[:] = [request["module"], *request["arguments"]]
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        setattr(sys, name, _opened(number, getattr(sys, f"__{name}__")))
        setattr(sys, f"__{name}__", getattr(sys, name))


def _opened(number: int, like: io.TextIOWrapper) -> io.TextIOWrapper:
    return open(  # type: ignore[return-value]
        number, "w" if number else "r", encoding=like.encoding, errors=like.errors,
        buffering=1 if number == 2 or os.isatty(number) else -1, closefd=False,
    )  # fmt: skip


def _import_all() -> None:
    import orchestrator.faces.cli.commands

    for module in pkgutil.iter_modules(orchestrator.faces.cli.commands.__path__):
        importlib.import_module(f"orchestrator.faces.cli.commands.{module.name}")
    importlib.import_module("orchestrator.faces.cli.app")
    importlib.import_module("orchestrator.engine.docker")


def main() -> None:
    """Serve requests; in a fork, run the requested module."""
    _import_all()
    # Garbage collections in forks would copy the memory of all imported modules.
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=int(sys.argv[1]))
    request = _serve(requests)
    requests.detach()
    if request is not None:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
