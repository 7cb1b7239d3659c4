"""A program in place of `ssh` that does on this machine what it is asked to do on another one."""

import os
import stat
import sys
from pathlib import Path

_PROGRAM = """\
#!{python} -IS
import ctypes, os, select, signal, socket, subprocess, sys, threading, time
from contextlib import suppress
from pathlib import Path

place = Path({place!r})
arguments = sys.argv[1:]
if arguments == ["-V"]:
    print("OpenSSH_9.2p1", file=sys.stderr)
    sys.exit(0)
with (place / "asked").open("a") as asked:
    asked.write("\\x1f".join(arguments) + "\\n")
if (place / "fails").exists():
    print("banner of the server", file=sys.stderr)
    print("Permission denied \\x1b[31m(publickey).", file=sys.stderr)
    sys.exit(255)
host = arguments[arguments.index("--") + 1]
if "-O" in arguments:
    # The process that holds the connection listens, and answers by removing the file.
    asked = place / f"forward-{{os.getpid()}}"
    asked.with_suffix(".new").write_text(arguments[arguments.index("-L") + 1])
    asked.with_suffix(".new").rename(asked)
    while asked.exists():
        time.sleep(0.02)
    if asked.with_suffix(".refused").exists():
        print("mux_client_forward: Port forwarding failed", file=sys.stderr)
        sys.exit(255)
    sys.exit(0)
words = arguments[arguments.index("--") + 2 :]
if words:
    os.execvp("sh", ["sh", "-c", " ".join(words)])

def carry(source, target):
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)

def forward(connection):
    with connection, socket.socket(socket.AF_UNIX) as engine:
        if (place / "forbids").exists():
            return
        engine.connect(there)
        back = threading.Thread(target=carry, args=(engine, connection))
        back.start()
        carry(connection, engine)
        back.join()

def lead(listener, port):
    if (place / "network").exists():
        space = os.open((place / "network").read_text(), os.O_RDONLY)
        assert ctypes.CDLL(None).setns(space, 0x40000000) == 0
    while True:
        connection, _ = listener.accept()
        there = socket.create_connection(("127.0.0.1", int(port)))
        for pair in ((connection, there), (there, connection)):
            threading.Thread(target=carry, args=pair, daemon=True).start()

def listen_at(where):
    address, port, target, target_port = where.split(":")
    listener = socket.create_server((address, int(port)))
    threading.Thread(target=lead, args=(listener, target_port), daemon=True).start()

def await_forwards():
    while True:
        for asked in place.glob("forward-*"):
            if asked.suffix:
                continue
            try:
                listen_at(asked.read_text())
            except OSError:
                asked.with_suffix(".refused").touch()
            asked.unlink()
        time.sleep(0.02)

threading.Thread(target=await_forwards, daemon=True).start()
for at, word in enumerate(arguments):
    if word == "-L" and arguments[at + 1].startswith("127."):
        listen_at(arguments[at + 1])
(place / "pids").open("a").write(f"{{os.getpid()}}\\n")
if "-L" not in arguments:
    signal.pause()
here, there = arguments[arguments.index("-L") + 1].split(":")
Path(here).unlink(missing_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(here)
listener.listen()
while True:
    connection, _ = listener.accept()
    threading.Thread(target=forward, args=(connection,), daemon=True).start()
"""


class FakeSsh:
    """Where the program is, what it was asked, and how it behaves."""

    def __init__(self, place: Path) -> None:
        """Write the program `ssh` to a directory."""
        self.directory = place
        program = place / "ssh"
        program.write_text(_PROGRAM.format(python=sys.executable, place=str(place)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    @property
    def path(self) -> str:
        """Return a value of `PATH` with the program in front."""
        return f"{self.directory}{os.pathsep}{os.environ['PATH']}"

    @property
    def asked(self) -> list[list[str]]:
        """Return the arguments of each call."""
        lines = (self.directory / "asked").read_text().split("\n")
        return [line.split("\x1f") for line in lines if line]

    @property
    def pids(self) -> list[int]:
        """Return the processes that held a connection, oldest first."""
        return list(map(int, (self.directory / "pids").read_text().split()))

    def lead_into(self, network: Path) -> None:
        """Let forwarded ports lead to 127.0.0.1 of a network namespace."""
        (self.directory / "network").write_text(str(network))

    def forbid_forwarding(self) -> None:
        """Answer no forwarded connection, as a server without stream-local forwarding."""
        (self.directory / "forbids").touch()

    def fail(self) -> None:
        """Refuse every connection, as a server that does not know the user."""
        (self.directory / "fails").touch()

    def give_docker(self, socket: Path) -> None:
        """Put a `docker` on the other machine whose `dial-stdio` reaches a socket."""
        script = f"""\
#!{sys.executable} -IS
import socket, sys, threading, os
assert sys.argv[1:] == ["system", "dial-stdio"], sys.argv
engine = socket.socket(socket.AF_UNIX)
engine.connect({str(socket)!r})
def send():
    while data := os.read(0, 1 << 16):
        engine.sendall(data)
    engine.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := engine.recv(1 << 16):
    os.write(1, data)
"""
        program = self.directory / "docker"
        program.write_text(script)
        program.chmod(0o755)
