"""Read what the kernel counted for a container, when its processes have ended.

The kernel keeps these numbers in the container's control group, which the engine removes about ten
milliseconds after the last process. The engine waits with the removal until the container's output
is complete, so a reader that holds the pipe of the output open has enough time (the engine waits up
to ten seconds). Nothing in the container takes part: a worker can neither change nor hide a number.
"""

import os
import select
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import docker
import docker.errors

from orchestrator.engine.counters import Counters
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.protocol import Usage
from orchestrator.errors import OrchestratorError
from orchestrator.text.split_lines import split_lines

ROOT = Path("/sys/fs/cgroup")
_LOOK = 0.01
"""Seconds between two searches for a container that is being started. The engine needs longer from
the creation of its control group to the start of its command.
"""
_LOOK_AGAIN = 0.002
"""Seconds between two attempts to open the output of a container whose command is being started."""
_NEVER_LATE = 5.0
"""Maximum number of seconds to wait for the counters of a container that has ended."""
_STARTING = (
    "memory/docker/{}", "docker/{}", "memory/system.slice/docker-{}.scope",
    "system.slice/docker-{}.scope",
)  # fmt: skip
"""Usual control groups of a container, in both versions of cgroups and with both drivers."""
_OUTPUT = (1, 2)
_BLOCK = 512
_LONGEST_SEARCH = 2.0
"""Maximum number of seconds to look for deleted files that are open."""
_FILES = {
    "cpu_time": ("cpuacct", ("cpuacct.usage", ""), ("cpu.stat", "usage_usec")),
    "peak_memory": ("memory", ("memory.max_usage_in_bytes", ""), ("memory.peak", "")),
    "memory_kills": ("memory", ("memory.oom_control", "oom_kill"), ("memory.events", "oom_kill")),
    "refused_processes": ("pids", ("pids.events", "max"), ("pids.events", "max")),
}
"""By counter: its controller, and its file and key with cgroup v1 and with v2."""
UNSEEN = "this process cannot see the container's control group"
GONE = "the container's control group was removed before its counters were read"
UNWATCHED = "no process watched the container's end"


class Meter:
    """Follows one container from its start to its end, in a thread, and reads its counters."""

    def __init__(self, container_id: str, find_process: Callable[[], int]) -> None:
        """Store the arguments; no thread is started.

        Args:
            container_id: Full id of the container.
            find_process: Returns the id of the running container's main process; else 0.
        """
        self._id = container_id
        self._find_process = find_process
        self._counters = Counters(missing=GONE)
        self._starts, self._started, self._done = (threading.Event() for _ in range(3))
        self._found = threading.Event()
        self._main = 0

    def begin(self) -> None:
        """Begin to look for the container, before its start; a second call has no effect."""
        if not self._starts.is_set():
            self._starts.set()
            threading.Thread(target=self._follow, name="counters", daemon=True).start()

    def started(self) -> None:
        """Record that the container was started, or that its start failed."""
        self._started.set()

    def was_started(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the end of the start; return whether it has ended."""
        return self._started.wait(timeout)

    def main_process(self) -> int:
        """Return the id of the container's main process, if possible before it runs; else 0."""
        self._found.wait()
        return self._main

    def counters(self) -> Counters:
        """Return the counters of a container that has ended."""
        if not self._starts.is_set():
            return Counters(missing=UNWATCHED)
        self._done.wait(_NEVER_LATE)
        return self._counters

    def _follow(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._done.set)
            stack.callback(self._found.set)
            try:
                self._main = self._process()
                self._found.set()
                self._counters = self._counted(self._main, stack)
            except (OSError, ValueError, OrchestratorError):
                self._counters = Counters(missing=GONE)

    def _process(self) -> int:
        """Return the id of the container's main process, if possible before it runs; else 0."""
        places = [str(ROOT / place.format(self._id) / "cgroup.procs") for place in _STARTING]
        while True:
            for place in places:
                # Nearly all searches end here: the daemon takes long to start a container.
                if os.access(place, os.R_OK) and (found := _main_process(Path(place))):
                    return found
            if self._started.wait(_LOOK):
                return self._find_process()

    def _counted(self, process: int, stack: ExitStack) -> Counters:
        if not process:
            return Counters(missing=UNWATCHED)
        alive = os.pidfd_open(process)
        stack.callback(os.close, alive)
        groups = control_groups(Path(f"/proc/{process}/cgroup").read_text(), self._id)
        if not groups:
            return Counters(missing=UNSEEN)
        ended = select.poll()
        ended.register(alive, select.POLLIN)
        # The process belongs to root until it executes the container's command.
        while not _hold(process, stack) and not ended.poll(_LOOK_AGAIN * 1000):
            continue
        ended.poll()
        return read_counters(groups)


def _main_process(listed: Path) -> int | None:
    """Return the process of a control group that is the first in a process namespace."""
    try:
        for pid in listed.read_text().split():
            status = Path(f"/proc/{pid}/status").read_text()
            line = next(line for line in split_lines(status) if line.startswith("NSpid:"))
            if len(line.split()) > 2 and line.split()[-1] == "1":
                return int(pid)
    except (OSError, StopIteration):
        return None
    return None


def _hold(process: int, stack: ExitStack) -> bool:
    """Hold the container's output open until the stack is left; return False to try again."""
    for number in _OUTPUT:
        path = Path(f"/proc/{process}/fd/{number}")
        try:
            if path.is_fifo():
                stack.callback(os.close, os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except PermissionError:
            return False
        except OSError:
            continue
    return True


def control_groups(listed: str, container_id: str) -> dict[str, Path]:
    """Return the directories of a container's control groups, by controller.

    The directory with the key "" is that of cgroup v2, which serves all controllers that v1 does
    not.

    Args:
        listed: Content of `/proc/PID/cgroup` of a process in the container.
        container_id: Full id of the container.
    """
    groups = {}
    for line in split_lines(listed):
        _, controllers, path = line.split(":", 2)
        if container_id in path:
            for controller in controllers.split(","):
                groups[controller] = ROOT / controller / path.lstrip("/")
    return groups


def read_counters(groups: Mapping[str, Path]) -> Counters:
    """Return the counters in the control groups of a container whose processes have ended."""
    found: dict[str, int | None] = {}
    for name, (controller, old, new) in _FILES.items():
        file, key = old if controller in groups else new
        directory = groups.get(controller, groups.get(""))
        found[name] = None if directory is None else _number(directory / file, key)
    cpu = found.pop("cpu_time")
    absent = [name for name, value in (("cpu_time", cpu), *found.items()) if value is None]
    if len(absent) == len(_FILES):
        return Counters(missing=GONE)
    return Counters(
        cpu_time=None if cpu is None else cpu / (10**9 if "cpuacct" in groups else 10**6),
        missing=f"the kernel does not count {', '.join(absent)}" if absent else None,
        **found,
    )


def _number(path: Path, key: str) -> int | None:
    """Return the number in a file, or the one behind `key`; None if the kernel does not keep it."""
    try:
        lines = [line.split() for line in split_lines(path.read_text())]
    except OSError:
        return None
    return next((int(line[-1]) for line in lines if not key or line[0] == key), None)


def deleted_size(container_id: str, *, seconds: float = _LONGEST_SEARCH) -> int:
    """Return the bytes on disk of deleted files that a container's processes have open.

    No directory lists such files. What this process may not see counts as nothing, and so does what
    is not found in time.

    Args:
        container_id: Full id of the container.
        seconds: Time after which the search ends.
    """
    until = time.monotonic() + seconds
    found, in_memory, listed = dict[tuple[int, int], int](), set[str](), ""
    lists = (ROOT / place.format(container_id) / "cgroup.procs" for place in _STARTING)
    # The container may end meanwhile.
    with suppress(OSError):
        listed = next((file.read_text() for file in lists if os.access(file, os.R_OK)), "")
    for process in (Path("/proc", pid) for pid in listed.split()):
        # So may a process, or it belongs to another user.
        with suppress(OSError):
            in_memory = in_memory or _devices_in_memory(process)
            for link in (process / "fd").iterdir():
                if time.monotonic() > until:
                    return sum(found.values())
                with suppress(OSError):
                    info = link.stat()
                    # What is in memory has a limit already.
                    is_gone = stat.S_ISREG(info.st_mode) and info.st_nlink == 0
                    if is_gone and _device(info) not in in_memory:
                        found[info.st_dev, info.st_ino] = info.st_blocks * _BLOCK
    return sum(found.values())


def _devices_in_memory(process: Path) -> set[str]:
    """Return the devices of the file systems in memory that a process sees, and that of memfds."""
    mounts = [line.partition(" - ") for line in split_lines((process / "mountinfo").read_text())]
    devices = {left.split()[2] for left, _, kind in mounts if kind.startswith("tmpfs ")}
    with os.fdopen(os.memfd_create("device")) as own:
        return devices | {_device(os.fstat(own.fileno()))}


def _device(info: os.stat_result) -> str:
    return f"{os.major(info.st_dev)}:{os.minor(info.st_dev)}"


def measure(client: docker.APIClient, container_id: str) -> Usage | None:
    """Return a container's current resource usage; None if it is not running."""
    with translated("measure the container"):
        try:
            stats = client.stats(container_id, stream=False, one_shot=True)
        except docker.errors.NotFound:
            return None
    pids = stats.get("pids_stats", {})
    if not pids.get("current"):
        return None
    return Usage(
        memory=_memory_in_use(stats.get("memory_stats", {})),
        pids=pids["current"],
        pids_limit=pids.get("limit"),
        cpu=stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage"),
    )


def _memory_in_use(stats: Mapping[str, Any]) -> int | None:
    usage = stats.get("usage")
    if usage is None:
        return None
    detail = stats.get("stats", {})
    # Without page cache that the kernel can drop, as in `docker stats`.
    # The key differs between cgroup v1 and v2.
    cache = detail.get("total_inactive_file", detail.get("inactive_file", 0))
    return max(int(usage) - int(cache), 0)
