"""Measure a running container, now and then, and say when it has used too much."""

import time
from pathlib import Path

from orchestrator.config.container import Limits
from orchestrator.engine.protocol import Container, Usage
from orchestrator.errors import EngineError
from orchestrator.files.disk_usage import DiskUse, disk_use
from orchestrator.results import Reason
from orchestrator.state.endings import Stop

MEASURE = 1.0
"""Seconds between two measurements of what a container uses."""
_MEASURE_DISK = 0.25
"""Seconds between two looks at what it has written, at least; a large tree is looked at less."""
_SHARE = 0.1
"""Share of our time that goes into looking at what one worker has written."""
_REST = 10.0
"""Seconds between two such looks, at most."""
_LONGEST = 20.0
"""Seconds that one look at what it has written may take."""
_PATIENCE = 3
"""Measurements in a row at the process limit, or with locked directories, before we act: a build
may touch it, a fork bomb stays."""


def mib(size: int) -> str:
    """Write bytes for people."""
    return f"{size / 2**20:,.0f} MiB"


class LimitMeter:
    """Measures one container; its owner asks, and acts on `verdict`."""

    def __init__(
        self,
        container: Container,
        limits: Limits,
        writable: tuple[Path, ...],
        *,
        before: DiskUse,
    ) -> None:
        """Get ready.

        Args:
            container: What is measured.
            limits: What it may use.
            writable: Directories on the host that grow as it writes.
            before: What lay there before it wrote, such as its checkout in mode bind.
        """
        self.peak_memory: int | None = None
        """Bytes, the most that was seen."""
        self.limits_hit: list[str] = []
        self.verdict: Stop | None = None
        self._container = container
        self._limits = limits
        self._writable = writable
        self._before = before
        self._at_pids_limit = self._locked = self._late = 0
        self._next_usage = time.monotonic() + MEASURE
        self._next_disk = time.monotonic() + _MEASURE_DISK

    def look(self) -> None:
        """Measure what is due; this may take a while, and no clock waits for it."""
        now = time.monotonic()
        if now >= self._next_disk:
            most = self._before.files + self._limits.inodes
            self._note_disk(disk_use(self._writable, most_files=most, seconds=_LONGEST))
            cost = time.monotonic() - now
            pause = max(_MEASURE_DISK, min(cost / _SHARE, _REST))
            self._next_disk = time.monotonic() + pause
        if now >= self._next_usage:
            self._next_usage = now + MEASURE
            self._measure_usage()

    def _measure_usage(self) -> None:
        try:
            usage = self._container.usage()
        except EngineError:
            # Said again, and acted on, by whoever waits for the container's end.
            return
        if usage is not None:
            self._note_usage(usage)

    def _note_usage(self, usage: Usage) -> None:
        if usage.memory is not None:
            self.peak_memory = max(self.peak_memory or 0, usage.memory)
        at_limit = usage.pids is not None and usage.pids >= (usage.pids_limit or usage.pids + 1)
        self._at_pids_limit = self._at_pids_limit + 1 if at_limit else 0
        if at_limit and "pids" not in self.limits_hit:
            self.limits_hit.append("pids")
        if self._at_pids_limit >= _PATIENCE:
            self.verdict = Stop(
                Reason.PIDS, f"stopped: it kept forking against its limit of {usage.pids} processes"
            )

    def _note_disk(self, use: DiskUse) -> None:
        limits = self._limits
        written, made = use.size - self._before.size, use.files - self._before.files
        self._locked = self._locked + 1 if use.hidden else 0
        self._late = self._late + 1 if use.late else 0
        if written > limits.disk:
            self.limits_hit.append("disk")
            self.verdict = Stop(
                Reason.DISK, f"stopped: it wrote {mib(written)}, its limit is {mib(limits.disk)}"
            )
        elif made > limits.inodes:
            self.limits_hit.append("inodes")
            self.verdict = Stop(
                Reason.INODES, f"stopped: it made {made:,} files, its limit is {limits.inodes:,}"
            )
        elif self._locked * _MEASURE_DISK > _PATIENCE * MEASURE:
            self.limits_hit.append("disk")
            self.verdict = Stop(
                Reason.DISK, "stopped: it keeps directories locked, and what is in them uncounted"
            )
        elif self._late >= _PATIENCE:
            self.limits_hit.append("disk")
            self.verdict = Stop(
                Reason.DISK,
                f"stopped: what it wrote could not be counted within {_LONGEST:g} s,"
                f" {_PATIENCE} times in a row",
            )
