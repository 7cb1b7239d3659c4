"""The process that ends sandboxes whose time is over, or whose owner is gone.

It runs as a program of its own that needs only Python's library, has no parent and little memory,
and serves all sandboxes of one user. Commands in sandboxes cannot reach it. It looks at the lease
of each sandbox twice in a second, and ends when there is none. The removal itself is done by
another program, `orchestrator.sandbox.expire`, which loads the engine.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

LEASE, LOCK, LOG = "lease.json", "reaper.lock", "reaper.log"
_TICK = 0.5
_LINGER = 20.0
"""Seconds without a sandbox after which the process ends."""
_AGAIN = 10.0
"""Seconds until the removal of a sandbox is tried again."""
_NEW = 5.0
"""Seconds after which a directory without a lease counts as left behind."""
_LARGEST_LOG = 1024**2


def _is_over(lease: Mapping[str, str], boot: str) -> bool:
    """Return whether a sandbox must end: by its time, or because its owner or the boot is gone."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    if (boot and boot != lease["boot"]) or time.clock_gettime(clock) >= float(lease["ends"]):
        return True
    # protection: sandbox-of-dead-process-ends
    return bool(lease["owner"]) and _is_gone(lease["owner"])


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _is_gone(mark: str) -> bool:
    _, process, started = mark.split(" ")
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(int(process), 0)
        except PermissionError:
            return False
        except OSError:
            return True
        return False
    fields = _text(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()
    return not fields or fields[0] in "XZ" or fields[19] != started


def overdue(parent: Path) -> Iterator[str]:
    """Yield the ids of sandboxes that must end, and of networks that no sandbox needs any more."""
    leases: dict[str, Mapping[str, str]] = {}
    for path in parent.iterdir():
        with suppress(OSError, ValueError):
            if not path.is_dir():
                continue
            try:
                leases[path.name] = json.loads((path / LEASE).read_text())
            except FileNotFoundError:
                if time.time() > path.stat().st_mtime + _NEW:
                    yield path.name
    # A network outlives its process if a sandbox does that is in it.
    # protection: network-of-living-sandbox-stays
    used = {lease.get("network") for lease in leases.values()}
    boot = _text(Path("/proc/sys/kernel/random/boot_id"))
    for name, lease in leases.items():
        with suppress(LookupError, ValueError):
            if name not in used and _is_over(lease, boot):
                yield name


def watch(parent: Path, lock: int) -> None:
    """End sandboxes as they become overdue, until there has been none for a while."""
    tried: dict[str, float] = {}
    running: list[subprocess.Popen[bytes]] = []
    seen = time.monotonic()
    while True:
        now = time.monotonic()
        running = [process for process in running if process.poll() is None]
        with suppress(OSError):
            if any(path.is_dir() for path in parent.iterdir()):
                seen = now
            due = [name for name in overdue(parent) if now >= tried.get(name, 0.0)]
            if due:
                tried = {name: at for name, at in tried.items() if at > now}
                tried |= dict.fromkeys(due, now + _AGAIN)
                command = [sys.executable, "-P", "-m", "orchestrator.sandbox.expire", *due]
                running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        if now - seen > _LINGER or not parent.is_dir():
            # Whoever creates a sandbox from now on starts a new process.
            fcntl.flock(lock, fcntl.LOCK_UN)
            with suppress(OSError):
                if any(path.is_dir() for path in parent.iterdir()):
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        return
                    seen = now
                    continue
            return
        time.sleep(_TICK)


def main(arguments: Sequence[str]) -> int:
    """Detach from the parent process, and watch."""
    parent, lock = Path(arguments[0]), int(arguments[1])
    if os.fork():
        os._exit(0)
    with suppress(OSError):
        Path("/proc/self/comm").write_text("sandboxes")
        if (parent / LOG).stat().st_size > _LARGEST_LOG:
            os.truncate(parent / LOG, 0)
    watch(parent, lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
