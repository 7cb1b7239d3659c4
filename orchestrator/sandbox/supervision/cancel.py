"""Requests to stop running workers: a whole run, or one worker."""

import threading
from dataclasses import dataclass
from typing import Protocol

from orchestrator.state.run_directory import RunDirectory


class CancelButton(Protocol):
    """A request to end a worker, which may be made at any time."""

    @property
    def stop_asked(self) -> bool:
        """Whether the worker was asked to stop."""

    @property
    def kill_asked(self) -> bool:
        """Whether the worker was asked to end without a grace period."""

    @property
    def why(self) -> str:
        """Why the run was cancelled: the first words of a message to the user."""


class Cancel:
    """A request to end a whole run: its workers are asked to stop, or are killed."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._killed = threading.Event()
        self.why = "cancelled"
        """Why the run was cancelled, as the start of a message to the user."""

    def press(self, *, kill: bool, why: str | None = None) -> None:
        """Ask every worker of the run to stop; with `kill`, workers end without a grace period."""
        if why is not None and not self.stop_asked:
            self.why = why
        self._asked.set()
        if kill:
            self._killed.set()

    def wait(self, timeout: float) -> None:
        """Sleep for at most `timeout` seconds, or until workers are asked to stop."""
        self._asked.wait(timeout)

    @property
    def stop_asked(self) -> bool:
        """Whether the run's workers were asked to stop."""
        return self._asked.is_set()

    @property
    def kill_asked(self) -> bool:
        """Whether the run's workers were asked to end without a grace period."""
        return self._killed.is_set()


@dataclass(frozen=True)
class WorkerCancel:
    """A request to end one worker, made for its whole run or by another process."""

    run: Cancel
    directory: RunDirectory
    worker_id: int

    @property
    def stop_asked(self) -> bool:
        """Whether the worker was asked to stop."""
        return self.run.stop_asked or self.directory.stop_asked(self.worker_id)

    @property
    def kill_asked(self) -> bool:
        """Whether the worker was asked to end without a grace period."""
        return self.run.kill_asked or self.directory.kill_asked(self.worker_id)

    @property
    def why(self) -> str:
        """Why the run was cancelled: the first words of a message to the user."""
        return self.run.why
