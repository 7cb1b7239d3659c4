"""Whose a run is, and what users who may not read the run's directory know of it.

A run's directory can only be entered by its owner. Another file, which all users of the repository
can read, has the names of the run's worktrees and branches, which these users see
anyway, and its process, which tells them whether the run is in progress.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.owner import user_name
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.machine import process_exists, start_time

_MOST = 8 * 1024**2
_MOST_PROCESSES = 1 << 31
_NONE = 0
"""In place of the id of a process: the run has ended."""


class PublicRecord:
    """The public file of one run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.place = directory.parent.with_name("owners")
        """The directory of these files."""
        self._file = self.place / f"{directory.name}.json"

    def other_user(self) -> str | None:
        """Return the owner of a run that this process may not read; None if it may read the run."""
        # protection: users-run-that-cannot-be-read-is-somebody-elses
        if os.access(self._directory, os.R_OK | os.X_OK):
            return None
        try:
            return user_name(self._directory.lstat().st_uid)
        except OSError:
            return None

    def write(self, names: Mapping[str, object]) -> None:
        """Write the file, with the names of the run's worktrees and branches."""
        write_atomically(self._file, json.dumps(names))

    def sign(self) -> None:
        """Record that this process carries out the run."""
        mark = {"process": os.getpid(), "started": start_time(os.getpid())}
        with suppress(OSError):
            self.write({**self.read(), **mark})

    def sign_off(self) -> None:
        """Record that this process has ended the run, unless another process carries it out."""
        found = self.read()
        if found.get("process") == os.getpid():
            with suppress(OSError):
                self.write({**found, "process": _NONE})

    def read(self) -> dict[str, Any]:
        """Return the content of the file; empty if it cannot be read."""
        try:
            with open_regular(self._file) as file:
                found = json.loads(file.read(_MOST))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def remove(self) -> None:
        """Remove the file."""
        self._file.unlink(missing_ok=True)

    def is_live(self) -> bool:
        """Return whether the run's process exists, or may exist because nothing says otherwise."""
        found = self.read()
        process, started = found.get("process"), found.get("started")
        if not isinstance(process, int) or not 0 <= process < _MOST_PROCESSES:
            return True
        # protection: users-run-of-another-user-is-live-while-its-process-is
        if process == _NONE:
            return False
        return process_exists(process) and started in (None, start_time(process))
