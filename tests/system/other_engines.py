"""Test the orchestrator with the Docker engines of other Debian releases, beside the machine's own.

    make engines                  test the engines of SUITES
    other_engines.py SUITE [PATH...]   test one engine, with the tests in PATH

Installs the release with mmdebstrap, and starts its engine in mount and network namespaces of its
own, in which the tests run as well: no packet can leave the machine. Fails if a test fails. Needs
root, mmdebstrap, a Docker daemon with the images of `make images`, and a network.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITES = ("bookworm", "trixie", "sid")
"""Debian releases; their engines were 20.10.24, 26.1.5 and 28.5.2 in November 2026."""
TESTS = (
    "tests/engine", "tests/network/gateway", "tests/system/test_gateway.py",
    "tests/system/loopback_resolver.py",
)  # fmt: skip
MORE = {"trixie": (("runsc",), ("tests/system/gvisor.py",))}
"""More packages and tests of a release. Its gVisor is the one that works on a kernel of today:
bookworm's cannot list a directory, and sid's of November 2026 ends with a panic now and then.
"""
RUNTIMES = {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none"]}}
IMAGES = ("orchestrator/base:latest", "orchestrator/worker:architect", "orchestrator/broker:latest")
PACKAGES = "docker.io,iptables,nftables,iproute2,ca-certificates,procps,xz-utils,mount,git"
LIMIT = 120.0
"""Maximum number of seconds until an engine answers."""
START = """\
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
for shared in /sys /dev /run; do
  mount --rbind "$shared" "$1$shared"
done
for shared in /tmp "$2"; do
  mkdir -p "$1$shared"
  mount --bind "$shared" "$1$shared"
done
mkdir -p "$1/var/lib/docker"
mount --bind "$3/data" "$1/var/lib/docker"
printf 'nameserver 127.0.0.1\n' > "$3/resolv.conf"
rm -f "$1/etc/resolv.conf"
cp "$3/resolv.conf" "$1/etc/resolv.conf"
mkdir "$1/old"
cd "$1"
# With chroot in place of pivot_root, `docker exec` would enter the machine's root directory.
pivot_root . old
umount -l /old
exec dockerd --host "unix://$3/docker.sock" --exec-root "$3/exec" --pidfile "$3/pid"
"""
INSIDE = """\
mount --make-rprivate /
mount --bind "$1/docker.sock" /run/docker.sock
mount --bind "$1/resolv.conf" /etc/resolv.conf
shift
exec "$@"
"""


def main() -> int:
    """Test each engine; return 1 if a test of any engine failed."""
    suites = sys.argv[1:2] or SUITES
    failed = []
    for suite in suites:
        _, more = MORE.get(suite, ((), ()))
        if not passes(suite, sys.argv[2:] or (*TESTS, *more)):
            failed.append(suite)
    for suite in suites:
        say(f"{suite}: {'failed' if suite in failed else 'passed'}")
    return 1 if failed else 0


def say(text: str) -> None:
    """Print a text."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def passes(suite: str, tests: Sequence[str]) -> bool:
    """Return whether the tests pass with the engine of a Debian release."""
    with tempfile.TemporaryDirectory(prefix="orc-engine-", ignore_cleanup_errors=True) as scratch:
        place = Path(scratch)
        install(suite, place / "root")
        with engine(place) as inside:
            version = (
                "docker",
                "version",
                "--format",
                "{{.Server.Version}}, API {{.Server.APIVersion}}",
            )
            say(f"{suite}: Docker {output(*inside, *version)}")
            saved = subprocess.Popen(("docker", "save", *IMAGES), stdout=subprocess.PIPE)
            subprocess.run((*inside, "docker", "load", "--quiet"), stdin=saved.stdout, check=True)
            pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
            return subprocess.run((*inside, *pytest), cwd=ROOT, check=False).returncode == 0


def output(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def install(suite: str, root: Path) -> None:
    """Install a Debian release with its engine into a directory."""
    more, _ = MORE.get(suite, ((), ()))
    packages = ",".join((PACKAGES, *more))
    command = (
        "mmdebstrap", "--quiet", "--variant=apt", "--aptopt=Apt::Install-Recommends \"false\"",
        "--aptopt=Acquire::Check-Valid-Until \"false\"", f"--include={packages}", suite, str(root),
    )  # fmt: skip
    subprocess.run(command, check=True)
    if more:
        (root / "etc/docker").mkdir(exist_ok=True)
        (root / "etc/docker/daemon.json").write_text(json.dumps({"runtimes": RUNTIMES}))


@contextmanager
def engine(place: Path) -> Iterator[tuple[str, ...]]:
    """Run the engine of a release during the block; yield the prefix of commands that use it.

    Args:
        place: Scratch directory that has the release in `root`.
    """
    name = place.name
    (place / "data").mkdir()
    subprocess.run(("ip", "netns", "add", name), check=True)
    network = ("nsenter", f"--net=/run/netns/{name}", "unshare", "--mount")
    script = (*network, "bash", "-ec", START, name, str(place / "root"), str(ROOT), str(place))
    socket = place / "docker.sock"
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(script, stdout=log, stderr=log)
    try:
        subprocess.run(("ip", "-n", name, "link", "set", "lo", "up"), check=True)
        wait_until_ready(process, socket, place / "log")
        yield (*network, "bash", "-ec", INSIDE, name, str(place))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)
        subprocess.run(("ip", "netns", "delete", name), check=False)


def wait_until_ready(process: "subprocess.Popen[bytes]", socket: Path, log: Path) -> None:
    """Wait until an engine answers; exit with the end of its log if it does not."""
    deadline = time.monotonic() + LIMIT
    ask = ("docker", "--host", f"unix://{socket}", "version")
    while subprocess.run(ask, capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the engine does not answer:\n{log.read_text()[-2000:]}")
        time.sleep(0.3)


if __name__ == "__main__":
    sys.exit(main())
