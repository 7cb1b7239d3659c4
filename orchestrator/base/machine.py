"""Facts about this machine, and what its kernel offers: no other module asks Linux for them.

Each function also works on systems without `/proc` and without Linux's own system calls, or says
that the fact is unknown there.
"""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

_ENDED = ("Z", "X")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MEMORY = Path("/proc/meminfo")
_MOUNTS = Path("/proc/mounts")
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})
_ESCAPE = re.compile(r"\\([0-7]{3})")
"""A character that the kernel writes as an octal number, such as a space."""


def own_command(*words: str) -> list[str]:
    """Return the command line that starts this program with arguments, in any directory.

    The current directory, which may be a repository, must not provide modules.
    """
    # protection: repository-provides-no-modules
    return [sys.executable, "-P", "-m", "orchestrator", *words]


def uptime() -> float:
    """Return the seconds since the machine's boot, including time asleep.

    The wall clock's changes have no effect.
    """
    # Outside Linux, the monotonic clock counts the time asleep too.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str | None:
    """Return a text that no other boot of this machine has; None if it is unknown."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    command = ("sysctl", "-n", "kern.bootsessionuuid")  # macOS
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(command, check=True, capture_output=True, text=True, timeout=5)
        return asked.stdout.strip() or None
    return None


def process_exists(process: int) -> bool:
    """Return whether a process exists, of any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def start_time(process: int) -> int | None:
    """Return when a process started, in ticks since the boot; None if that cannot be known.

    A process that has ended and whose parent has not noticed is a process that never started.
    """
    try:
        said = Path(f"/proc/{process}/stat").read_text(errors="replace")
        state, *fields = said.rpartition(")")[2].split()
        return -1 if state in _ENDED else int(fields[18])
    except (OSError, ValueError, IndexError):
        return None


def process_mark() -> str:
    """Return a text that no other process has: of this boot, or of another one."""
    return f"{boot_id()} {os.getpid()} {start_time(os.getpid())}"


def process_is_gone(mark: str, *, here: bool) -> bool:
    """Return whether the process with a mark has ended; False if this cannot be known.

    Args:
        mark: The process's mark.
        here: Whether it was a process of this machine, perhaps before its last start.
    """
    boot, _, rest = mark.partition(" ")
    process, _, started = rest.partition(" ")
    if boot != str(boot_id()):
        return here
    # protection: tests-of-live-processes-are-left-alone
    return not (
        process.isdecimal()
        and process_exists(int(process))
        and started == str(start_time(int(process)))
    )


def cpu_count() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def total_memory() -> int:
    """Return the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_memory() -> int | None:
    """Return the bytes of memory that programs can still get; None if it is unknown."""
    try:
        lines = dict(line.split(":", 1) for line in _MEMORY.read_text().split("\n") if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None


def is_in_memory(directory: Path) -> bool:
    """Return whether a directory is certainly on a file system in memory."""
    if not directory.is_dir():
        return False
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape").split("\n")
    except OSError:
        return False
    # protection: in-memory-links-are-resolved
    place = directory.resolve()
    best, kind = Path(), ""
    for line in filter(None, mounts):
        _, target, file_system, *_ = line.split(" ")
        mount = Path(_ESCAPE.sub(lambda code: chr(int(code[1], 8)), target))
        # Of two mounts on one directory, the later hides the earlier.
        # protection: in-memory-innermost-mount-decides
        if place.is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, file_system
    return kind in _MEMORY_FILE_SYSTEMS


def reserve_name(name: str) -> "socket.socket | IO[bytes] | None":
    """Reserve a name for this process until the returned object is closed or the process ends.

    On Linux, the name is reserved among all processes of the machine (as an abstract socket), on
    other systems among those of this user (as a locked file).

    Args:
        name: A name of letters, digits and dashes.

    Returns:
        The object that holds the name; None if another process has it.

    Raises:
        OSError: The system refuses.
    """
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0{name}")
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        if error.errno not in (errno.ENOENT, errno.EINVAL):
            raise
    else:
        return lock
    # The system has no abstract sockets.
    directory = Path(tempfile.gettempdir()) / f"orchestrator-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.lstat().st_uid != os.getuid() or directory.is_symlink():
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(directory))
    file = (directory / name).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
