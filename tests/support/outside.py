"""An outside world for gateways, in a network namespace of the test: name server, web servers.

Nothing of it leaves this machine. Its addresses are routed to the namespace, or nowhere. The
program under test finds the name server in `/etc/resolv.conf`, as it does on every machine; it sees
that file in a mount namespace of its own.
"""

import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.cli import Completed

NETWORK = "10.99.112.0/24"
"""Addresses of the outside, which every gateway closes unless an entry opens them."""
PRIVATE = "10.99.113.0/24"
PUBLIC = "192.52.193.10"
"""A public address, of the block for multicast relays (RFC 7450); routed to the namespace."""
NAME_SERVER = "10.99.112.53"
OWN = "10.99.112.1"
"""Address of this machine in the network of the outside."""
_DEVICE = "orch-outside"
_ADDRESSES = (*(f"10.99.112.{n}" for n in (10, 11, 12, 53)), "10.99.113.10", PUBLIC)
RECORDS = {
    "files.example": ["10.99.112.10"],
    "other.example": ["10.99.112.11"],
    "a.wide.example": ["10.99.112.12"],
    "wide.example": ["10.99.112.12"],
    "private.example": ["10.99.113.10"],
    "public.example": [PUBLIC],
    "metadata.example": ["169.254.169.254"],
    "loopback.example": ["127.0.0.1"],
    "machine.example": [OWN],
    "changing.example": ["10.99.112.10", "10.99.113.10"],
}
"""Addresses by name; with several addresses, successive answers take turns."""
_LOCK = Path(tempfile.gettempdir()) / "orchestrator-test-outside.lock"


class Outside:
    """The servers of the outside, and what they were asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = folder / "seen"
        self._resolv = folder / "resolv.conf"
        self.certificate = folder / "certificate"
        """Certificate of all web servers with TLS, which is not signed by any authority."""
        self._resolv.write_text(f"nameserver {NAME_SERVER}\n")

    def orchestrator(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        timeout: float = 500,
        caller: Sequence[str] = (),
        python: str = sys.executable,
    ) -> Completed:
        """Run `orchestrator ARGUMENTS` with the name server of the outside.

        Args:
            arguments: The arguments.
            cwd: The working directory.
            env: Variables; with a caller, all of them.
            timeout: Seconds until the command must have ended.
            caller: Words before the command that make it another user's.
            python: The interpreter.
        """
        started = time.monotonic()
        done = subprocess.run(
            self.command(*arguments, caller=caller, python=python),
            cwd=cwd,
            env=dict(env or {}) if caller else {**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        seconds = time.monotonic() - started
        return Completed(done.returncode, done.stdout, done.stderr, seconds, peak_memory=0)

    def command(
        self, *arguments: str, caller: Sequence[str] = (), python: str = sys.executable
    ) -> tuple[str, ...]:
        """Return a command that runs `orchestrator ARGUMENTS` with this name server."""
        script = (
            f"set -e; mount --bind {self._resolv} /etc/resolv.conf; "
            "if [ -d /run/systemd/resolve ]; then mount -t tmpfs none /run/systemd/resolve; fi; "
            'exec "$@"'
        )
        program = (*caller, python, "-m", "orchestrator", *arguments)
        return ("unshare", "--mount", "sh", "-c", script, "sh", *program)

    @contextmanager
    def site(self) -> Iterator[Path]:
        """Make a folder whose files all web servers serve, for the time of the block."""
        folder = self._folder / "site"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def seen(self, kind: str) -> list[dict[str, Any]]:
        """Return what the servers were asked: `dns`, `tls` or `http`."""
        # The last line may be incomplete while a server writes it.
        whole = self._seen.read_text().rpartition("\n")[0]
        entries = map(json.loads, whole.splitlines())
        return [entry for entry in entries if entry["kind"] == kind]

    def names(self) -> set[str]:
        """Return the names that the name server was asked for."""
        return {entry["name"] for entry in self.seen("dns")}

    def forget(self) -> None:
        """Forget what the servers were asked."""
        self._seen.write_text("")


@contextmanager
def outside(folder: Path) -> Iterator[Outside]:
    """Create the outside, one at a time on this machine."""
    with _LOCK.open("w") as lock, ExitStack() as stack:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _ip("link", "delete", _DEVICE, check=False)  # left by a session that was killed
        for network in (NETWORK, PRIVATE, f"{PUBLIC}/32"):
            # Without the device, this route drops the packets: they never leave the machine.
            _ip("route", "replace", "blackhole", network, "metric", "4000")
            stack.callback(_ip, "route", "delete", "blackhole", network, "metric", "4000")
        namespace = f"orchestrator-outside-{secrets.token_hex(3)}"
        _ip("netns", "add", namespace)
        stack.callback(_ip, "netns", "delete", namespace)
        _connect(namespace)
        stack.callback(_ip, "link", "delete", _DEVICE)
        world = Outside(folder)
        world.forget()
        with _servers(namespace, folder):
            yield world


def _connect(namespace: str) -> None:
    peer = ("peer", "name", "eth0", "netns", namespace)
    _ip("link", "add", _DEVICE, "type", "veth", *peer)
    _ip("address", "add", f"{OWN}/24", "dev", _DEVICE)
    _ip("link", "set", _DEVICE, "up")
    for network in (PRIVATE, PUBLIC):
        _ip("route", "add", network, "dev", _DEVICE)
    for device in ("lo", "eth0"):
        _ip("-n", namespace, "link", "set", device, "up")
    for address in _ADDRESSES:
        _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")


@contextmanager
def _servers(namespace: str, folder: Path) -> Iterator[None]:
    (folder / "records").write_text(json.dumps(RECORDS))
    _make_certificate(folder)
    program = Path(__file__).with_name("outside_servers.py")
    command = ["ip", "netns", "exec", namespace, sys.executable, str(program)]
    command += [str(folder), NAME_SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.terminate()


def _make_certificate(folder: Path) -> None:
    # Several clients accept no wildcard directly below the last label.
    names = ",".join(f"DNS:{name}" for name in RECORDS)
    subject = ("-subj", "/CN=outside", "-addext", f"subjectAltName={names}")
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", str(folder / "key"), "-out", str(folder / "certificate"))
    subprocess.run(
        ("openssl", "req", *kind, "-days", "2", *subject, *files), check=True, capture_output=True
    )


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(("ip", *arguments), check=check, capture_output=True)


def wait_for(found: Any, what: str, timeout: float = 60) -> Any:
    """Call `found` until its result is true, and return that."""
    deadline = time.monotonic() + timeout
    while not (result := found()):
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.05)
    return result
