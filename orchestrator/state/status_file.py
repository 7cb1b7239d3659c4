"""`status.md` of a run: a table of who does what, kept as it is now, for people and agents."""

import threading
from contextlib import suppress

from orchestrator.events import Event, RunStarted
from orchestrator.files.atomic import write_atomically
from orchestrator.state.run_directory import RunDirectory
from orchestrator.workflow.status_table import StatusBoard

STATUS = "status.md"


class StatusFile:
    """Is told what happens, from many threads, and writes the table when it has changed."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._board = StatusBoard()
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        with self._lock:
            if isinstance(event, RunStarted):
                record = self._directory.record()
                self._board = StatusBoard(record.workflow if record else None)
            if self._board.note(event):
                # A full disk, or a run that was undone, costs the table and no worker its end.
                with suppress(OSError):
                    write_atomically(self._directory.path / STATUS, self._board.text())
