"""Read what the kernel counted for a container, until its processes have ended.

The kernel keeps these numbers in the container's control group. Once that is removed, none can be
read, not even from a file that is open. An engine that removes it itself waits until the
container's output is complete, up to ten seconds, so a reader that holds the pipe of the output
open has enough time. But systemd removes the control group of a scope as soon as its last process
has ended. So the numbers are also read while the container runs: ten times in a second, when the
kernel tells of a kill or a refusal, when the command below the first process ends, and before this
process kills the container. Nothing in the container takes part: a worker can neither change nor
hide a number.
"""

import math
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

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.files.disk_usage import DiskUse, disk_use
from orchestrator.base.text.split_lines import split_lines
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.protocol import Usage

ROOT = Path("/sys/fs/cgroup")
_LOOK = 0.01
"""Seconds between two searches for a container that is being started. The engine needs longer from
the creation of its control group to the start of its command.
"""
_LOOK_AGAIN = 0.002
"""Seconds between two attempts to open the output of a container whose command is being started."""
_NEVER_LATE = 5.0
"""Maximum number of seconds to wait for the counters of a container that has ended."""
_OFTEN = 0.1
"""Seconds between two readings of a running container."""
_LAST_STEPS = 0.25
"""Seconds in which a container ends whose command has ended, or which this process has killed."""
_USER = "user.slice/user-{uid}.slice/user@{uid}.service/user.slice"
_STARTING = (
    "memory/docker/{id}", "docker/{id}", "memory/system.slice/docker-{id}.scope",
    "system.slice/docker-{id}.scope", "machine.slice/libpod-{id}.scope/container",
    "machine.slice/libpod-{id}.scope", f"{_USER}/docker-{{id}}.scope",
    f"{_USER}/libpod-{{id}}.scope/container", f"{_USER}/libpod-{{id}}.scope",
)  # fmt: skip
"""Usual control groups of a container, in both versions of cgroups, with both drivers, of engines
that root or this user started.
"""
_OUTPUT = (1, 2)
_BLOCK = 512
_MOST_FILES = 2_000_000
"""Number of files after which a layer is not walked any further."""
_LONGEST_WALK = 20.0
"""Seconds after which a layer is not walked any further."""
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
_LONGEST_FILE = 4096
_TOLD = ("memory_kills", "refused_processes")
"""Counters of which the kernel tells a change, with version 2 of control groups."""


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
        self._readings = Readings({})

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

    def so_far(self) -> Counters:
        """Return the counters of a container that may still run."""
        self.begin()
        self.started()
        if self.main_process() and self._readings.look(is_last=True):
            return self._readings.counters()
        return self._counters

    @property
    def is_exact(self) -> bool:
        """Return whether the counters were read after the container's last process had ended."""
        return self._readings.is_exact

    def look(self) -> None:
        """Read the counters now, because the container is about to be killed."""
        self._readings.look(is_last=True)

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
        while True:
            for place in _lists(self._id):
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
        self._readings = readings = Readings(groups)
        stack.callback(readings.close)
        changes, command = select.poll(), 0
        changes.register(alive, select.POLLIN)
        for file in readings.told:
            changes.register(file, select.POLLPRI)
        held, until = False, time.monotonic() + _NEVER_LATE
        while True:
            # The process belongs to root until it executes the container's command.
            held = held or _hold(process, stack)
            command = command or _watch_child(process, changes, stack)
            hurries = not (held and command) and time.monotonic() < until
            changed = changes.poll(1000 * (_LOOK_AGAIN if hurries else _OFTEN))
            ended = {file for file, _ in changed}
            # protection: counters-are-read-when-command-ends
            is_there = readings.look(is_last=command in ended)
            if alive in ended or not is_there:
                readings.is_exact = is_there
                counted = readings.counters()
                # Without its control group, the container has nearly ended.
                select.select([alive], (), ())
                return counted
            if command in ended:
                changes.unregister(command)


class Readings:
    """The numbers in the control groups of a container, whose files stay open."""

    def __init__(self, groups: Mapping[str, Path]) -> None:
        """Open the files in the directories of the control groups, by controller."""
        self.is_exact = False
        """Whether the numbers were read after the container's last process had ended."""
        self._lock = threading.Lock()
        self._files: dict[str, tuple[int, str]] = {}
        self._numbers: dict[str, int | None] = {}
        self._read, self._last = -math.inf, -math.inf
        self._per_second = 10**9 if "cpuacct" in groups else 10**6
        for name, (controller, old, new) in _FILES.items():
            file, key = old if controller in groups else new
            directory = groups.get(controller, groups.get(""))
            if directory is not None:
                # The kernel does not keep every number.
                with suppress(OSError):
                    self._files[name] = os.open(directory / file, os.O_RDONLY | os.O_CLOEXEC), key

    @property
    def told(self) -> list[int]:
        """Return the open files of whose changes the kernel tells."""
        return [self._files[name][0] for name in _TOLD if name in self._files]

    def look(self, *, is_last: bool = False) -> bool:
        """Read all numbers; return False if the control groups are gone.

        Args:
            is_last: Whether nothing but its end is left for the container to do.
        """
        with self._lock:
            for name, (file, key) in self._files.items():
                try:
                    text = os.pread(file, _LONGEST_FILE, 0).decode()
                except OSError:
                    return False
                lines = [line.split() for line in split_lines(text)]
                found = (int(line[-1]) for line in lines if not key or line[0] == key)
                self._numbers[name] = next(found, None)
            if self._files:
                self._read = time.monotonic()
                self._last = self._read if is_last else self._last
            return bool(self._files)

    def counters(self) -> Counters:
        """Return the numbers that were read last, and what is wrong with them at this moment."""
        with self._lock:
            if self._read == -math.inf:
                return Counters(missing=GONE)
            found = {name: self._numbers.get(name) for name in _FILES}
            now = time.monotonic()
            age = now - self._read
            is_whole = self.is_exact or now - self._last < _LAST_STEPS
        absent = [name for name, value in found.items() if value is None]
        missing = None
        if absent:
            missing = f"the kernel does not count {', '.join(absent)}"
        elif not is_whole:
            missing = f"what the container used in its last {age:.2f} s"
        cpu = found.pop("cpu_time")
        return Counters(
            cpu_time=None if cpu is None else cpu / self._per_second, missing=missing, **found
        )

    def close(self) -> None:
        """Close the files; the numbers stay."""
        with self._lock:
            for file, _ in self._files.values():
                os.close(file)
            self._files.clear()


def _lists(container_id: str) -> list[str]:
    """Return the usual paths of the list of a container's processes."""
    names = (place.format(id=container_id, uid=os.getuid()) for place in _STARTING)
    return [str(ROOT / name / "cgroup.procs") for name in names]


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


def _watch_child(process: int, changes: "select.poll", stack: ExitStack) -> int:
    """Let a poll notice the end of a process's first child; return its descriptor, or 0."""
    # The child may have ended meanwhile, or the kernel does not list children.
    with suppress(OSError):
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        if children:
            found = os.pidfd_open(int(children[0]))
            stack.callback(os.close, found)
            changes.register(found, select.POLLIN)
            return found
    return 0


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
            # Some runtimes (crun) and containers (systemd) use a group below the container's.
            before, _, rest = path.partition(container_id)
            own = f"{before}{container_id}{rest.partition('/')[0]}".lstrip("/")
            for controller in controllers.split(","):
                groups[controller] = ROOT / controller / own
    return groups


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
    # The container may end meanwhile.
    with suppress(OSError):
        listed = next(
            (Path(file).read_text() for file in _lists(container_id) if os.access(file, os.R_OK)),
            "",
        )
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


def layer_use(client: docker.APIClient, container_id: str) -> DiskUse:
    """Measure what a container wrote to its root file system.

    Who cannot read the engine's own directory learns the size, but not the number of files.
    """
    with translated("inspect the container"):
        found = client.inspect_container(container_id)
    upper = (found["GraphDriver"]["Data"] or {}).get("UpperDir") or ""
    if upper and os.access(upper, os.R_OK | os.X_OK):
        return disk_use([Path(upper)], most_files=_MOST_FILES, seconds=_LONGEST_WALK)
    with translated("measure the container"):
        (listed,) = client.containers(all=True, size=True, filters={"id": container_id})
    return DiskUse(size=int(listed.get("SizeRw") or 0), files=0, hidden=0)


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
