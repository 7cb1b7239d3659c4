"""Maintain the file `status.md` of a run: a table of all workers and their states."""

import threading
from contextlib import suppress

from orchestrator.events import Event, RunStarted
from orchestrator.files.atomic import write_atomically
from orchestrator.state.run_directory import STATUS, RunDirectory
from orchestrator.state.run_record import read_record
from orchestrator.workflow.status_table import StatusBoard


class StatusFile:
    """Writes the status table when an event changes the table. Accepts events from many threads."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._board = StatusBoard()
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Update the table in `status.md` for an event."""
        with self._lock:
            if isinstance(event, RunStarted):
                record = read_record(self._directory)
                self._board = StatusBoard(record.workflow if record else None)
            if self._board.note(event):
                # On a full disk, or if the run was removed, only the table is lost; the workers
                # continue. They do not wait for the disk, because the table has nothing that the
                # run's other files do not have.
                with suppress(OSError):
                    text = self._board.text()
                    write_atomically(self._directory.path / STATUS, text, durable=False)
