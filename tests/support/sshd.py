"""A real ssh server in the network namespace of a daemon, and a configuration of `ssh` for it."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.own_daemon import Daemon

ROOT = Path(__file__).parents[2]
UNPACKED = ROOT / "build" / "sshd"
"""Where `make variants` unpacks Debian's packages of the server, if it is not installed."""
HOST = "build.example"
"""Name of the server, which only the configuration of `ssh` knows."""
_PORT = 2222
_PATIENCE = 30.0
_SERVER = """\
Port {port}
ListenAddress {address}
HostKey {place}/host
PidFile none
AuthorizedKeysFile {place}/key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowStreamLocalForwarding {forwards}
SetEnv DOCKER_HOST={socket}
"""
_CLIENT = """\
Host {host}
  HostName {address}
  Port {port}
  User root
  IdentityFile {place}/key
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  UserKnownHostsFile {place}/known
  GlobalKnownHostsFile /dev/null
"""
_USERS = """\
root:*:0:0::/root:/bin/sh
sshd:*:65530:65534::/run/sshd:/usr/sbin/nologin
"""
# A machine without the package has neither the server's user nor its directory. All of `/etc`
# is replaced: a program that adds users here replaces single files, with what is mounted on them.
_START = """\
set -e
mount --bind "$1/etc" /etc
mount -t tmpfs -o mode=0755 none /run
mkdir /run/sshd
shift
exec "$@"
"""


class Sshd:
    """The server: its address, and the value of `PATH` with which `ssh` knows it."""

    def __init__(self, place: Path, daemon: Daemon, *, forwards: bool) -> None:
        """Create keys and configurations.

        Args:
            place: Directory for them.
            daemon: The daemon; the server is in its network namespace.
            forwards: Whether the server forwards Unix sockets.
        """
        self._place, self._daemon = place, daemon
        place.mkdir()
        address = urlsplit(daemon.tls_url).hostname
        values = {
            "place": place, "port": _PORT, "address": address, "host": HOST, "socket": daemon.url,
            "forwards": "yes" if forwards else "no",
        }  # fmt: skip
        for name in ("host", "key"):
            command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name))
            subprocess.run(command, check=True)
        (place / "config").write_text(_CLIENT.format(**values))
        (place / "server").write_text(_SERVER.format(**values))
        public = (place / "host.pub").read_text()
        (place / "known").write_text(f"[{address}]:{_PORT} {public}")
        (place / "etc").mkdir()
        (place / "etc" / "passwd").write_text(_USERS)
        (place / "etc" / "group").write_text("root:x:0:\n")
        program = place / "bin" / "ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {place}/config "$@"\n')
        program.chmod(0o755)
        self.path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        self.url = f"ssh://{HOST}{daemon.url.removeprefix('unix://')}"

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the server, and wait until it answers."""
        places = (os.environ["PATH"], "/usr/sbin", str(UNPACKED / "usr/sbin"))
        program = shutil.which("sshd", path=os.pathsep.join(places))
        assert program, "there is no sshd: `make variants` unpacks one"
        library = next((UNPACKED / "usr/lib").glob("*-linux-gnu"), UNPACKED)
        command = ("nsenter", f"--net={self._daemon.network}", "unshare", "--mount",
                   "--propagation", "private", "sh", "-c", _START, "sh", str(self._place),
                   program, "-D", "-e", "-f", str(self._place / "server"))  # fmt: skip
        with (self._place / "log").open("wb") as log:
            environment = {**os.environ, "LD_LIBRARY_PATH": str(library)}
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE
        ask = (str(self._place / "bin" / "ssh"), "-o", "BatchMode=yes", HOST, "true")
        while subprocess.run(ask, check=False, capture_output=True).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self._place / "log").read_text())
            time.sleep(0.1)
        return process

    def clients(self) -> list[str]:
        """Return the command lines of the clients that are connected to the server."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if f"{self._place}/config" in words:
                found.append(" ".join(words))
        return found


@contextmanager
def ssh_server(place: Path, daemon: Daemon, *, forwards: bool = True) -> Iterator[Sshd]:
    """Run a server during the block."""
    server = Sshd(place, daemon, forwards=forwards)
    process = server.start()
    try:
        yield server
    finally:
        process.kill()
        process.wait()
