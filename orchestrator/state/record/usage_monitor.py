"""Measure resource usage and changed files of a run's workers from another process."""

import stat
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Self

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.events import Emit, WorkerMeasured
from orchestrator.base.files.disk_usage import disk_use
from orchestrator.base.files.walk import Walk
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.interface.labels import MANAGED, ROLE, RUN, WORKER, place_name
from orchestrator.engine.interface.protocol import ContainerEngine, Usage
from orchestrator.engine.places.place import GIT, TREE, Place, PlaceEngine, PlaceSpec
from orchestrator.state.record.history import RunHistory
from orchestrator.state.record.worker_view import TALKING
from orchestrator.state.worker.worker_directory import Store

INTERVAL = 1.0
"""Default number of seconds between two measurements of the workers."""
MOST_FILES = 20_000
"""Maximum number of files that are counted for each worker in one measurement."""
_MOST_ENTRIES = 10 * MOST_FILES
"""Maximum number of files and directories that are scanned for each worker in one measurement."""
_REST = 2.0
"""Minimum pause between two scans of files, as a multiple of a scan's duration, up to `_LONGEST`.
"""
_LONGEST = 5.0
"""Maximum seconds between two scans of files, and maximum seconds of a scan of one worker's files.
"""


class UsageMonitor:
    """Measures the running workers regularly in a separate thread, and emits the usage.

    With a separate thread, a slow engine or a large directory does not delay the display of the
    run.
    """

    def __init__(
        self,
        history: RunHistory,
        emit: Emit,
        *,
        connect: Callable[[], ContainerEngine],
        interval: float = INTERVAL,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Store the arguments; measuring starts with the `with` block.

        Args:
            history: The run, whose events the caller continues to read.
            emit: Receives the measurements.
            connect: Connects to the container engine; may raise an error.
            interval: Seconds between two measurements.
            wanted: Called before each measurement; the thread ends if it returns False.
        """
        self._history = history
        self._emit = emit
        self._connect = connect
        self._interval = interval
        self._wanted = wanted
        self._engine: ContainerEngine | None = None
        self._places: dict[str, Place] = {}
        """The places of workers whose files are in the engine."""
        self._before: dict[int, tuple[float, int]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="usage", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The thread is not joined: the engine may be slow, and the thread ends with the process.
        self._ended.set()

    def _measure(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause) and self._wanted():
            begun = time.monotonic()
            walked = self.look()
            took = time.monotonic() - begun
            pause = max(self._interval - took, min(walked * _REST, _LONGEST), 0)
        if self._engine is not None:
            self._engine.close()

    def look(self) -> float:
        """Measure all running workers once; return the seconds that the scans of files took."""
        workers = [w for w in self._history.workers.values() if w.state in TALKING]
        usage = self._usage() if workers else {}
        begun = time.monotonic()
        for number, spec in ((worker.spec.worker_id, worker.spec) for worker in workers):
            used = usage.get(number)
            disk, files = self._in_place(number) if self._is_sent else self._here(number, spec)
            measured = WorkerMeasured(
                worker_id=number,
                cpus=self._rate(number, used),
                memory=used.memory if used else None,
                disk=disk,
                files=files,
            )
            if not self._ended.is_set():
                self._emit(measured)
        return time.monotonic() - begun

    @property
    def _is_sent(self) -> bool:
        """Return whether the workers' files are copies in the engine."""
        used = self._history.record.engine_used
        return used is not None and used.transfer == "streams"

    def _here(self, number: int, spec: WorkerSpec) -> tuple[int | None, int | None]:
        """Return the bytes on disk and the number of changed files of a worker."""
        store = Store(root=self._history.directory.worker(number))
        tree = store.upper if store.upper.is_dir() else store.copy
        use = disk_use((tree, store.git), most_files=MOST_FILES, seconds=_LONGEST)
        return use.size, count_changes(store, self._history.record.top / spec.directory)

    def _in_place(self, number: int) -> tuple[int | None, int | None]:
        """Return the same of a worker whose files are in the engine; None if it does not answer."""
        engine = self._engine
        if engine is None or not isinstance(engine, PlaceEngine):
            return None, None
        try:
            earlier = len(self._history.directory.attempts(number))
            name = place_name(self._history.run_id, number, earlier=earlier)
            if name not in self._places:
                spec = PlaceSpec(name=name, labels={}, parts=(), steps=())
                self._places[name] = engine.open_place(spec)
            place = self._places[name]
            use = place.usage((TREE, GIT), most_files=MOST_FILES, seconds=_LONGEST)
            changed = place.changed(TREE, most=_MOST_ENTRIES, seconds=_LONGEST)
            return use.size, sum(path != ".git" for path in islice(changed, MOST_FILES))
        except OrchestratorError:
            return None, None

    def _usage(self) -> dict[int, Usage]:
        labels = {MANAGED: "true", RUN: self._history.run_id, ROLE: "worker"}
        try:
            self._engine = self._engine or self._connect()
            found = self._engine.usage(labels)
        except OrchestratorError:
            # Usage is then not shown; the run's own process reports the error.
            return {}
        numbers = {use.labels.get(WORKER, ""): use.usage for use in found}
        return {int(number): used for number, used in numbers.items() if number.isdecimal()}

    def _rate(self, number: int, used: Usage | None) -> float | None:
        if used is None or used.cpu is None:
            return None
        now = time.monotonic()
        before = self._before.get(number)
        self._before[number] = (now, used.cpu)
        if before is None or now <= before[0]:
            return None
        # The counter of another attempt's container starts at zero.
        return max(used.cpu - before[1], 0) / 1e9 / (now - before[0])


def count_changes(store: Store, worktree: Path) -> int | None:
    """Return the number of files that a worker created, changed or removed; None if unknown.

    Ignored files count too. The number is approximate to be cheap: a file rewritten with the same
    content counts, and a removed or renamed folder counts as one.
    """
    if store.upper.is_dir():
        return len(_files(store.upper))
    try:
        # The host wrote this index after the checkout; the worker cannot change it.
        made_at = (store.harvest / "index").stat().st_mtime_ns
    except OSError:
        return None
    now = _files(store.copy)
    if not worktree.is_dir():
        # Without a worktree yet, what was removed is unknown.
        return None if len(now) == MOST_FILES else sum(at > made_at for at in now.values())
    base = _files(worktree)
    if MOST_FILES in (len(base), len(now)):
        return None
    changed = sum(path not in base or written > made_at for path, written in now.items())
    return changed + sum(path not in now for path in base)


def _files(root: Path) -> dict[str, int]:
    """Return the modification time of each file in a directory tree, without `.git` at the top."""
    found: dict[str, int] = {}
    walk = Walk(root, most=_MOST_ENTRIES, until=time.monotonic() + _LONGEST)
    for path, info in walk:
        if path != ".git" and not stat.S_ISDIR(info.st_mode):
            found[path] = info.st_mtime_ns
        if len(found) == MOST_FILES:
            break
    return found
