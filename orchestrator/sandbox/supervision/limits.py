"""Measure a running container's resource usage, and decide when it exceeds a limit."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from orchestrator.base.errors import EngineError
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.base.results import Reason
from orchestrator.base.text.quantities import size
from orchestrator.config.settings.container import Limits
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.protocol import Container, LayeredContainer
from orchestrator.state.worker.endings import Stop

MEASURE = 1.0
"""Seconds between two measurements of memory and of the number of processes."""
_CONFIRMED = 2
"""Measurements in a row after which deleted files count: the first may count a file twice."""
_CHECK_NETWORK = 2.0
"""Seconds between two checks whether the worker still has its network."""
_MEASURE_DISK = 0.25
"""Minimum number of seconds between two scans of a worker's files; more for a large tree."""
_SHARE = 0.1
"""Maximum share of the time that is spent on scanning the files of one worker."""
_REST = 10.0
"""Maximum number of seconds between two scans of the files that a worker wrote."""
_LONGEST = 20.0
"""Maximum duration of a scan of the files that a worker wrote, in seconds."""
_PATIENCE = 3
"""Number of successive measurements at the limit on processes, or of successive scans that take too
long, after which the container is stopped; also the number of seconds for which directories may be
unreadable. A build may reach the limit on processes for a moment; a fork bomb stays at the limit.
"""


def limits_hit(measured: Sequence[str], counters: Counters) -> tuple[str, ...]:
    """Return the limits that a container reached: by the kernel's counters, else as measured.

    A container is also measured while it is being stopped; each limit is named once.
    """
    known = {"memory": counters.memory_kills, "pids": counters.refused_processes}
    found = [name for name, number in known.items() if number]
    return (*found, *dict.fromkeys(name for name in measured if known.get(name) is None))


def lost_network(container: Container) -> str | None:
    """Return why a container has lost its network; None if the network exists, or if unknown."""
    try:
        return container.lost_network()
    except EngineError:
        # The thread that waits for the container's end gets the same error and handles it.
        return None


class DiskMeter(Protocol):
    """Measures the files that a container writes, within limits."""

    def __call__(self, *, most_files: int, seconds: float) -> DiskUse:
        """See `orchestrator.base.files.disk_usage.disk_use`."""


class LimitMeter:
    """Measures the resource usage of one container, each time that the caller calls `look`."""

    def __init__(
        self,
        container: Container,
        limits: Limits,
        disk_use: DiskMeter,
        *,
        before: DiskUse,
    ) -> None:
        """Prepare the first measurement.

        Args:
            container: The container.
            limits: The container's limits.
            disk_use: Measures the files that the container writes.
            before: Disk use before the start.
        """
        self.limits_hit: list[str] = []
        self.verdict: Stop | None = None
        self._container = container
        self._limits = limits
        self._disk_use = disk_use
        self._before = before
        self._at_pids_limit = self._locked = self._late = self._written = self._over = 0
        self._is_measured = False
        self._next_usage = time.monotonic() + MEASURE
        self._next_disk = time.monotonic() + _MEASURE_DISK
        self._next_network = time.monotonic() + _CHECK_NETWORK

    def look(self) -> None:
        """Take the measurements that are due; may block, as another thread checks the deadline."""
        now = time.monotonic()
        if now >= self._next_disk:
            most = self._before.files + self._limits.inodes
            # The thread that waits for the container's end gets the same error and handles it.
            with suppress(EngineError):
                use = self._disk_use(most_files=most, seconds=_LONGEST)
                layer = None
                if isinstance(self._container, LayeredContainer):
                    # protection: writable-root-counts-against-disk-limit
                    layer = self._container.layer()
                if layer is not None:
                    size, files = use.size + layer.size, use.files + layer.files
                    use = replace(use, size=size, files=files, late=use.late or layer.late)
                self._note_disk(use)
            cost = time.monotonic() - now
            pause = max(_MEASURE_DISK, min(cost / _SHARE, _REST))
            self._next_disk = time.monotonic() + pause
        if now >= self._next_usage:
            self._next_usage = now + MEASURE
            self._measure_processes()
        if now >= self._next_network:
            self._next_network = now + _CHECK_NETWORK
            lost = lost_network(self._container)
            if lost is not None:
                self.verdict = Stop(
                    Reason.NETWORK_LOST, f"stopped: the worker lost its network: {lost}"
                )

    def _measure_processes(self) -> None:
        try:
            usage = self._container.usage()
        except EngineError:
            # The thread that waits for the container's end gets the same error and handles it.
            return
        if usage is not None:
            self._note_deleted(usage.deleted)
            at_limit = usage.pids is not None and usage.pids >= (usage.pids_limit or usage.pids + 1)
            self._at_pids_limit = self._at_pids_limit + 1 if at_limit else 0
            if at_limit and "pids" not in self.limits_hit:
                self.limits_hit.append("pids")
            # protection: fork-bombs-are-stopped
            if self._at_pids_limit >= _PATIENCE:
                self.verdict = Stop(
                    Reason.PIDS,
                    f"stopped: the worker kept forking at its limit of {usage.pids} processes",
                )

    def _note_deleted(self, deleted: int) -> None:
        """Stop a worker that fills the disk with deleted files, which no directory lists."""
        if not self._is_measured:
            return
        self._is_measured = False
        written = self._written + deleted
        self._over = self._over + 1 if deleted and written > self._limits.disk else 0
        # protection: deleted-files-count-against-disk-limit
        if self._over >= _CONFIRMED:
            self._stop_at_disk(written)

    def _stop_at_disk(self, written: int) -> None:
        self.limits_hit.append("disk")
        self.verdict = Stop(
            Reason.DISK,
            f"stopped: the worker wrote {size(written)}, more than its limit of "
            f"{size(self._limits.disk)}",
        )

    def _note_disk(self, use: DiskUse) -> None:
        limits = self._limits
        written, made = use.size - self._before.size, use.files - self._before.files
        self._written, self._is_measured = written, True
        self._locked = self._locked + 1 if use.hidden else 0
        self._late = self._late + 1 if use.late else 0
        # protection: disk-limit
        if written > limits.disk:
            self._stop_at_disk(written)
        # protection: limit-on-number-of-files
        elif made > limits.inodes:
            self.limits_hit.append("inodes")
            self.verdict = Stop(
                Reason.INODES,
                f"stopped: the worker created {made:,} files, more than its limit of "
                f"{limits.inodes:,}",
            )
        # protection: unreadable-directories-stop-worker
        elif self._locked * _MEASURE_DISK > _PATIENCE * MEASURE:
            self.limits_hit.append("disk")
            self.verdict = Stop(
                Reason.DISK,
                "stopped: the worker keeps directories unreadable, so that their size "
                "cannot be measured",
            )
        elif self._late >= _PATIENCE:
            self.limits_hit.append("disk")
            self.verdict = Stop(
                Reason.DISK,
                f"stopped: the worker's files could not be measured within {_LONGEST:g} "
                f"s, {_PATIENCE} times in a row",
            )
