"""The repositories that the web view shows, and their runs; measures those that are live."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.base.events import Event, WorkerMeasured
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.run_engine import RunEngine
from orchestrator.faces.web.summaries import NOTHING, Badge, run_badge
from orchestrator.repository.repository import Repository
from orchestrator.state.record.history import RunHistory
from orchestrator.state.record.plan import add_plan
from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.usage_monitor import UsageMonitor
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_outline import RunOutline, read_outline
from orchestrator.state.run_record import RunRecord, read_record

INTERVAL = 2.0
"""Minimum number of seconds between two measurements of a run."""
PATIENCE = 10.0
"""Seconds without a request of a page after which the measurements of a run end."""


class LiveUsage:
    """Measures the live runs that pages show, in one thread per run, not per page. Thread-safe."""

    def __init__(self, connect: Callable[[RunEngine | None], ContainerEngine]) -> None:
        """Store the argument.

        Args:
            connect: Connects to the engine of a run; called again after it raised an error.
        """
        self._connect = connect
        self._runs: dict[str, _RunUsage] = {}
        self._lock = threading.Lock()

    def of(self, history: RunHistory) -> Mapping[int, WorkerMeasured]:
        """Return the latest measurements of a run's workers; the first call returns none."""
        with self._lock:
            usage = self._runs.get(history.run_id)
            if usage is None or not usage.is_wanted():
                usage = self._runs[history.run_id] = _RunUsage()
                usage.start(history, partial(self._connect, history.record.engine_used))
            usage.asked_at = time.monotonic()
            self._runs = {run: usage for run, usage in self._runs.items() if usage.is_wanted()}
        return dict(usage.latest)


class _RunUsage:
    """The latest measurements of one run's workers."""

    def __init__(self) -> None:
        self.latest: dict[int, WorkerMeasured] = {}
        self.asked_at = time.monotonic()

    def start(self, history: RunHistory, connect: Callable[[], ContainerEngine]) -> None:
        # The thread of the monitor ends when no page asks any more.
        monitor = UsageMonitor(
            history, self._note, connect=connect, interval=INTERVAL, wanted=self.is_wanted
        )
        monitor.__enter__()

    def is_wanted(self) -> bool:
        return time.monotonic() - self.asked_at < PATIENCE

    def _note(self, event: Event) -> None:
        if isinstance(event, WorkerMeasured):
            self.latest[event.worker_id] = event


MOST_OPEN = 64
"""Maximum number of runs whose records are kept in memory."""
PAGE = 50
"""Number of runs on one page of the list."""


@dataclass(frozen=True)
class ListedRun:
    """A run of a repository."""

    repository: str
    """Name of the repository in addresses."""
    directory: RunDirectory
    outline: RunOutline


class RunCatalog:
    """Finds runs, and caches the records of the runs that were shown last. Thread-safe."""

    def __init__(self, repositories: Sequence[Repository], usage: LiveUsage | None = None) -> None:
        """Store the arguments.

        Args:
            repositories: The repositories whose runs are shown.
            usage: Measures live workers. Default: workers are not measured.
        """
        found: dict[str, Repository] = {}
        for repository in repositories:
            if any(known.common_dir == repository.common_dir for known in found.values()):
                continue
            plain = (
                re.sub(r"[^A-Za-z0-9._-]+", "-", repository.top.name).strip(".-") or "repository"
            )
            name, number = plain, 1
            while name in found:
                number += 1
                name = f"{plain}-{number}"
            found[name] = repository
        self.repositories: Mapping[str, Repository] = found
        self._usage = usage
        self._histories: OrderedDict[Path, RunHistory] = OrderedDict()
        self._outlines: dict[Path, RunOutline] = {}
        self._badges: dict[Path, Badge] = {}
        self._plans: dict[Path, RunRecord | None] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the files of all runs."""
        with self._lock:
            for history in self._histories.values():
                history.__exit__()
            self._histories.clear()

    def runs(self) -> list[tuple[str, RunDirectory]]:
        """Return the directories of all runs with their repositories' names, newest run first."""
        found = [
            (name, directory)
            for name, repository in self.repositories.items()
            for directory in all_runs(repository.state_dir)
        ]
        return sorted(found, key=lambda run: run[1].run_id, reverse=True)

    def readable(self, runs: Sequence[tuple[str, RunDirectory]]) -> list[ListedRun]:
        """Return only the runs whose records can be read."""
        return [
            ListedRun(name, directory, outline)
            for name, directory in runs
            if directory.other_user is None
            if (outline := self._outline(directory)) is not None
        ]

    def run(self, repository: str, run_id: str) -> ListedRun | None:
        """Return the run with an id in a repository; None if there is no such run."""
        known = self.repositories.get(repository)
        if known is None:
            return None
        directory = next((run for run in all_runs(known.state_dir) if run.run_id == run_id), None)
        outline = self._outline(directory) if directory else None
        if directory is None or outline is None or directory.other_user is not None:
            return None
        return ListedRun(repository, directory, outline)

    def badge(self, run: ListedRun) -> Badge:
        """Return the state of a run, without reading its events."""
        if run.directory.is_live():
            return run_badge(None, is_live=True)
        # A result is written once; a run without a result may be resumed.
        path = run.directory.path
        if path not in self._badges:
            found = run.directory.run_result()
            if found is None:
                return run_badge(None, is_live=False)
            self._badges[path] = run_badge(found, is_live=False)
        return self._badges[path]

    def plan(self, directory: RunDirectory) -> RunRecord | None:
        """Return the whole plan of a run; None if the plan has an unknown format."""
        if directory.path not in self._plans:
            self._plans[directory.path] = read_record(directory)
        return self._plans[directory.path]

    def version(self, run: ListedRun) -> str:
        """Return a text that changes whenever the record of a run changes."""
        return self._history(run.directory, run.outline).version()

    def snapshot(self, run: ListedRun) -> RunView:
        """Return all that is recorded about a run: its workers, their results and the events."""
        history = self._history(run.directory, run.outline)
        # Before the events: what is recorded meanwhile belongs to the next version.
        version = history.version()
        snapshot = history.snapshot()
        snapshot.version = version
        add_plan(snapshot, self.plan(run.directory))
        return snapshot

    def usage_of(self, run: ListedRun) -> Mapping[int, WorkerMeasured]:
        """Return the latest measurements of a live run's workers."""
        if self._usage is None:
            return NOTHING
        return self._usage.of(self._history(run.directory, run.outline))

    def _history(self, directory: RunDirectory, outline: RunOutline) -> RunHistory:
        with self._lock:
            history = self._histories.pop(directory.path, None) or RunHistory(directory, outline)
            self._histories[directory.path] = history
            while len(self._histories) > MOST_OPEN:
                self._histories.popitem(last=False)[1].__exit__()
            return history

    def _outline(self, directory: RunDirectory) -> RunOutline | None:
        # A plan is written once, before anything else, and never changes.
        if directory.path not in self._outlines:
            outline = read_outline(directory)
            if outline is None:
                return None
            self._outlines[directory.path] = outline
        return self._outlines[directory.path]
