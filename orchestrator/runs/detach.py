"""Continue a run in a background process that outlives this one."""

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.state.run_directory import RunDirectory

LEASE = "ORCHESTRATOR_LEASE_FD"
"""Environment variable with the descriptor number of the inherited lease."""
LOG = "background.log"


def go_on_in_background(directory: RunDirectory, *, top: Path) -> int:
    """Start a process in its own session that carries out a reserved run.

    The child inherits the lease, so that the run's lease is held without interruption.

    Args:
        directory: The run's directory, its lease held.
        top: The repository's top level.

    Returns:
        The process id.
    """
    lease = directory.lease_descriptor
    with (directory.path / LOG).open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "resume", "--quiet", directory.run_id],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=top,
            env={**os.environ, LEASE: str(lease)},
            pass_fds=(lease,),
            start_new_session=True,
        )
    # This process does not wait for the child; without a return code, Popen would warn about that.
    child.returncode = 0
    return child.pid


def handed_down() -> int | None:
    """Return the lease's descriptor from the parent process; a second call returns None."""
    lease = os.environ.pop(LEASE, None)
    return int(lease) if lease and lease.isdecimal() else None
