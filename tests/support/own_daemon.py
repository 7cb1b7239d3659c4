"""A separate Docker daemon for a test: it may be killed, or be as on another machine."""

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import docker

from orchestrator.engine.images.names import BASE_IMAGE

_PATIENCE = 90.0


class Daemon:
    """A daemon that shares no socket, image, network or firewall rule with the machine's daemon."""

    address = "172.17.0.1"
    """Address of the default bridge, in the network namespace of the daemon."""

    def __init__(
        self, root: Path, *, keeps_containers: bool = False, hidden: Sequence[Path] = (),
        tls: bool = False,
    ) -> None:  # fmt: skip
        """Store the settings of the daemon.

        Args:
            root: Directory of the daemon; a short path, because sockets are created in it.
            keeps_containers: Whether containers outlive the daemon.
            hidden: Directories of this machine that are empty for the daemon.
            tls: Whether the daemon also listens on `tcp`, for clients with a certificate.
        """
        self.url = f"unix://{root / 'docker.sock'}"
        # Daemons in one network namespace delete each other's bridge when they restart.
        self._namespace = f"orc-{secrets.token_hex(4)}"
        self.network = Path("/run/netns") / self._namespace
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None
        self.certificates = root / "tls" if tls else None
        """Directory with `ca.pem`, `cert.pem` and `key.pem`, as `DOCKER_CERT_PATH` names it."""
        number = secrets.randbelow(250 * 64) * 4
        self._link = f"v{self._namespace[4:]}"
        self._addresses = [f"10.203.{number >> 8}.{(number & 255) + last}" for last in (1, 2)]
        self.tls_url = f"tcp://{self._addresses[1]}:2376"
        # On another machine, names may have other addresses.
        self.hosts = root / "hosts"
        other = f"mount --bind '{self.hosts}' /etc/hosts && "
        hide = other + "".join(f"mount -t tmpfs none '{path}' && " for path in hidden)
        pem = {name: str(root / "tls" / f"{name}.pem") for name in ("ca", "server", "server-key")}
        self._command = [
            "nsenter", f"--net={self.network}", "unshare", "--mount", "--propagation", "private",
            "sh", "-c", f'{hide}exec "$@"', "sh",
            "dockerd", "--data-root", str(root / "data"),
            "--exec-root", str(root / "exec"), "--pidfile", str(root / "pid"), "--host", self.url,
            *(["--live-restore"] if keeps_containers else []),
            *(["--host", self.tls_url, "--tlsverify", "--tlscacert", pem["ca"], "--tlscert",
               pem["server"], "--tlskey", pem["server-key"]] if tls else []),
        ]  # fmt: skip

    def prepare(self) -> None:
        """Create the network namespace, start the daemon and load the image."""
        subprocess.run(("ip", "netns", "add", self._namespace), check=True)
        loopback = ("ip", "-n", self._namespace, "link", "set", "lo", "up")
        subprocess.run(loopback, check=True)
        if self.certificates is not None:
            self._connect()
            make_certificates(self.certificates, self._addresses[1])
        self.hosts.write_text("127.0.0.1 localhost\n")
        self.start()
        theirs = docker.APIClient(version="auto", timeout=600)
        ours = docker.APIClient(version="auto", timeout=600, base_url=self.url)
        try:
            for _ in ours.load_image(theirs.get_image(BASE_IMAGE)):
                pass
        finally:
            theirs.close()
            ours.close()

    def _connect(self) -> None:
        """Create a link between this machine and the daemon's network namespace."""
        name, space, (ours, theirs) = self._link, self._namespace, self._addresses
        for words in (
            ("link", "add", name, "type", "veth", "peer", "name", "up0", "netns", space),
            ("addr", "add", f"{ours}/30", "dev", name),
            ("link", "set", name, "up"),
            ("-n", space, "addr", "add", f"{theirs}/30", "dev", "up0"),
            ("-n", space, "link", "set", "up0", "up"),
        ):
            subprocess.run(("ip", *words), check=True)

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            assert time.monotonic() < deadline, (self._root / "log").read_text()[-2000:]
            # After a crash, dockerd may give up waiting for containerd: start it again.
            if self._process is None or self._process.poll() is not None:
                (self._root / "pid").unlink(missing_ok=True)
                self._repair_networks()
                with (self._root / "log").open("ab") as log:
                    self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
            time.sleep(0.1)

    def _repair_networks(self) -> None:
        """Remove a network database with which Docker 20.10 ends in a panic at each start."""
        log = self._root / "log"
        if log.exists() and "libnetwork.New(" in log.read_text()[-8000:]:
            shutil.rmtree(self._root / "data" / "network", ignore_errors=True)

    def _answers(self) -> bool:
        with suppress(docker.errors.DockerException, OSError):
            client = docker.APIClient(base_url=self.url, version="1.41", timeout=5)
            try:
                return bool(client.ping())
            finally:
                client.close()
        return False

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the daemon and wait for its end."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(_PATIENCE)

    def take_down(self) -> None:
        """End the daemon and all of its processes."""
        if self._process is not None and self._process.poll() is None:
            with suppress(docker.errors.DockerException, OSError):
                client = docker.DockerClient(base_url=self.url)
                for container in client.containers.list(all=True):
                    container.remove(force=True)
                client.close()
            self.end(signal.SIGTERM)
        for pid in self._below():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(("ip", "netns", "delete", self._namespace), check=False)
        mounts = Path("/proc/mounts").read_text().splitlines()
        for line in reversed(mounts):
            if (place := line.split(" ")[1]).startswith(f"{self._root}/"):
                subprocess.run(("umount", "--lazy", place), check=False)
        shutil.rmtree(self._root, ignore_errors=True)

    def _below(self) -> list[int]:
        """Return the processes of the daemon's own containerd, found by their directory."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{self._root}/" in (entry / "cmdline").read_text().replace("\0", " "):
                    found.append(int(entry.name))
        return found


def by_tls(daemon: Daemon) -> dict[str, str]:
    """Return the variables by which clients reach a daemon with TLS."""
    return {
        "DOCKER_HOST": daemon.tls_url,
        "DOCKER_TLS_VERIFY": "1",
        "DOCKER_CERT_PATH": str(daemon.certificates),
    }


def make_certificates(place: Path, address: str) -> None:
    """Create an authority, and the certificates of a server and a client that it signs."""
    place.mkdir()
    script = f"""\
set -e
new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj"
$new /CN=authority -x509 -days 2 -keyout ca-key.pem -out ca.pem
$new /CN=server -keyout server-key.pem -out server.csr
$new /CN=client -keyout key.pem -out client.csr
printf 'subjectAltName=IP:{address}' > server.ext
sign="openssl x509 -req -days 2 -CA ca.pem -CAkey ca-key.pem -CAcreateserial"
$sign -in server.csr -extfile server.ext -out server.pem
$sign -in client.csr -out cert.pem
"""
    subprocess.run(("sh", "-c", script), cwd=place, check=True, capture_output=True)


@contextmanager
def own_daemon(
    root: Path, *, keeps_containers: bool = False, hidden: Sequence[Path] = (), tls: bool = False
) -> Iterator[Daemon]:
    """Run a daemon during the block."""
    daemon = Daemon(root, keeps_containers=keeps_containers, hidden=hidden, tls=tls)
    root.mkdir()
    try:
        daemon.prepare()
        yield daemon
    finally:
        daemon.take_down()
