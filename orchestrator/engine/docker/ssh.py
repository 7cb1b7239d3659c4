"""Reach the engine of another machine through the user's own `ssh` program.

`ssh` forwards a Unix socket of this machine to the engine's socket there. A server that forbids
this runs `docker system dial-stdio` for each connection instead. The user's configuration of `ssh`
decides about keys and known hosts: nothing is asked, and no host key is accepted here.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.base.errors import ConfigError, EngineUnavailableError, PortTakenError
from orchestrator.base.text.sanitize import one_line

_SOCKET = "/var/run/docker.sock"
"""Path of the engine's socket there, unless the address names another one."""
_CONNECT = 30.0
"""Maximum number of seconds until the connection to the other machine stands."""
_PAUSES = (1.0, 2.0, 5.0, 15.0)
"""Seconds until a broken connection is made again; the last value applies to all further tries."""
_TICK = 0.02
_SETTINGS = (
    *("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=4"),
    # The connection ends with this process, and is nobody else's.
    *("ControlPersist=no", "RemoteCommand=none", "PermitLocalCommand=no", "Tunnel=no"),
    *("ForwardAgent=no", "ForwardX11=no", "RequestTTY=no", "EscapeChar=none", "GatewayPorts=no"),
    # The forwarding is ours. Those of the user's configuration may fail, as when `ssh` runs twice.
    *("ClearAllForwardings=no", "ExitOnForwardFailure=no", "StreamLocalBindUnlink=yes"),
    *("VisualHostKey=no", "LogLevel=ERROR"),
)
"""Settings that decide what the connection is, whatever the user's configuration says."""
_NEWER = ("ForkAfterAuthentication=no", "StdinNull=no")
"""The same for OpenSSH 8.7 and later; earlier versions do not know these names."""
_OPTIONS = ("-T", "-a", "-x")
# `ssh` ends when the standard input does, so that it never outlives this process. Without a last
# word of this process, its directory goes too.
_TIED = """\
exec 3<&0
directory=$1; shift
"$@" < /dev/null 3<&- &
child=$!
{ read -r _ <&3 || rm -rf "$directory"; kill "$child"; } 2> /dev/null &
wait "$child"
"""
_AGAIN = b"again\n"
_connecting = threading.Lock()
"""Held while a connection is made, so that the process makes one to each address."""


def tunnel_to(address: str) -> "SshTunnel":
    """Return this process's connection to an address for ssh, which ends with the process.

    Raises:
        ConfigError: The address is invalid.
        EngineUnavailableError: The other machine cannot be reached.
    """
    with _connecting:
        return _tunnel(address)


@cache
def _tunnel(address: str) -> "SshTunnel":
    return SshTunnel(address)


class SshTunnel:
    """A connection to another machine, which is made again when it breaks, until `close`."""

    def __init__(self, address: str) -> None:
        """Connect.

        Args:
            address: `ssh://[USER@]HOST[:PORT][/PATH]`, with the path of the engine's socket.

        Raises:
            ConfigError: The address is invalid.
            EngineUnavailableError: The other machine cannot be reached.
        """
        self._host, options, self._target = split_address(address)
        # A socket's path may have 107 bytes, so a configured directory for temporary files is
        # likely too long.
        self._directory = Path(tempfile.mkdtemp(prefix="orc-ssh-"))
        self.socket = self._directory / "docker.sock"
        control = ("-o", f"ControlPath={self._directory / 'control'}")
        self._is_newer = _version() >= (8, 7)
        # protection: users-configuration-of-ssh-does-not-change-what-tunnel-is
        settings = (*_SETTINGS, *(_NEWER if self._is_newer else ()))
        given = [word for setting in settings for word in ("-o", setting)]
        self._ssh = ("ssh", *_OPTIONS, *given, *control, *options)
        self._closed = threading.Event()
        self._ports: list[int] = []
        self._listener: socket.socket | None = None
        self._process = self._start()
        self._end = weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        try:
            self._wait_until_open()
            if not self._forwards():
                self._relay()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._keep, daemon=True, name="ssh").start()

    def close(self) -> None:
        """End the connection and remove the socket."""
        self._closed.set()
        if self._listener is not None:
            # Ends `accept` in the other thread, which `close` would not.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self._stop(self._process)
        self._end()

    def forward(self, port: int) -> None:
        """Let a port of 127.0.0.1 lead to the same port there, until `close`.

        Raises:
            PortTakenError: The port is in use here, or the server forbids this.
        """
        if port in self._ports:
            return
        command = (
            *self._ssh,
            "-o",
            "ControlMaster=no",
            "-O",
            "forward",
            *_leading(port),
            "--",
            self._host,
        )
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_CONNECT
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise PortTakenError(
                f"cannot forward port {port} from `{one_line(self._host)}`: {one_line(said)}",
                key="port.forward",
                hint="the ssh server must allow TCP forwarding (`AllowTcpForwarding`)",
            )
        self._ports.append(port)

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the `ssh` that holds the connection, and forwards the socket unless we listen."""
        forward = (
            () if self._listener
            else ("-L", f"{self.socket}:{self._target}")
        )  # fmt: skip
        ports = [word for port in self._ports for word in _leading(port)]
        command = (*self._ssh, "-N", "-o", "ControlMaster=yes", *forward, *ports, "--", self._host)
        with (self._directory / "log").open("wb") as log:
            return subprocess.Popen(
                ["sh", "-c", _TIED, "sh", str(self._directory), *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @staticmethod
    def _stop(process: "subprocess.Popen[bytes]", word: bytes = b"") -> None:
        # Another thread may have closed the pipe.
        with suppress(OSError, ValueError):
            process.communicate(word)
        process.wait()

    def _wait_until_open(self) -> None:
        deadline = time.monotonic() + _CONNECT
        while not self.socket.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                with (self._directory / "log").open("rb") as log:
                    log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
                    said = log.read(2000).decode("utf-8", "replace")
                reason = one_line(said.strip().rpartition("\n")[2]) or "it does not answer"
                raise EngineUnavailableError(
                    f"cannot connect to `{one_line(self._host)}` by ssh: {reason}",
                    key="ssh.failed",
                    hint=f"check that `ssh {one_line(self._host)} docker version` works without "
                    "a question",
                )
            time.sleep(_TICK)

    def _forwards(self) -> bool:
        """Return whether a connection through the forwarded socket is answered."""
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
            probe.settimeout(_CONNECT)
            probe.connect(str(self.socket))
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return bool(probe.recv(1))
        return False

    def _relay(self) -> None:
        """Listen in place of `ssh`, and run `dial-stdio` there for each connection."""
        self.socket.unlink()
        self._listener = listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.socket))
        listener.listen(128)
        threading.Thread(target=self._accept, args=(listener,), daemon=True, name="ssh").start()

    def _accept(self, listener: socket.socket) -> None:
        session = ("-o", "SessionType=default") if self._is_newer else ()
        command = [
            *self._ssh, "-o", "ControlMaster=no", *session, "--", self._host,
            "docker system dial-stdio",
        ]  # fmt: skip
        children: list[subprocess.Popen[bytes]] = []
        while not self._closed.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                break
            with connection, suppress(OSError):
                at = connection.fileno()
                child = subprocess.Popen(command, stdin=at, stdout=at, stderr=subprocess.DEVNULL)
                children = [child, *(other for other in children if other.poll() is None)]
        for child in children:
            child.kill()
            child.wait()

    def _keep(self) -> None:
        """Make the connection again whenever it breaks."""
        failures = 0
        while not self._closed.is_set():
            begun = time.monotonic()
            self._process.wait()
            failures = 0 if time.monotonic() - begun > max(_PAUSES) else failures + 1
            if self._closed.wait(_PAUSES[min(failures, len(_PAUSES) - 1)]):
                return
            self._stop(self._process, _AGAIN)
            self._process = self._start()
            if self._closed.is_set():
                self._stop(self._process)


@cache
def _version() -> tuple[int, int]:
    """Return the version of the user's OpenSSH; that of none if another program is named `ssh`."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            ("ssh", "-V"), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=10
        )
        if found := re.match(rb"OpenSSH_(\d+)\.(\d+)", done.stderr):
            return int(found[1]), int(found[2])
    return 0, 0


def listens(port: int) -> bool:
    """Return whether something listens at a port of 127.0.0.1."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _leading(port: int) -> tuple[str, str]:
    """Return options of `ssh` with which a port of 127.0.0.1 leads to the same port there."""
    # protection: forwarded-ports-are-of-this-machine-only
    return "-L", f"127.0.0.1:{port}:127.0.0.1:{port}"


def split_address(address: str) -> tuple[str, tuple[str, ...], str]:
    """Return the host, options of `ssh`, and the socket's path of an address.

    Raises:
        ConfigError: The address is invalid.
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host, user = parts.hostname or "", unquote(parts.username or "")
    bad = not host or parts.scheme != "ssh" or parts.password or parts.query or parts.fragment
    # `ssh` would take a host that begins with a dash for an option.
    if bad or host.startswith("-") or user.startswith("-") or any(c.isspace() for c in host + user):
        raise ConfigError(
            f"`{one_line(address)}` is not an address for ssh",
            key="ssh.address",
            hint="write it as `ssh://USER@HOST:PORT`; passwords are not supported",
        )
    options = (*(("-p", str(port)) if port else ()), *(("-l", user) if user else ()))
    path = unquote(parts.path)
    return host, options, path if path not in ("", "/") else _SOCKET
