"""Start ourselves again, as a process that outlives this one."""

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.state.run_directory import RunDirectory

LEASE = "ORCHESTRATOR_LEASE_FD"
"""Tells the child which descriptor of its is the run's lease."""
LOG = "background.log"


def go_on_in_background(directory: RunDirectory, *, top: Path) -> int:
    """Let another process, of a session of its own, go on with a run that was reserved.

    The run is never without somebody who holds its lease: the child is given ours.

    Args:
        directory: The run's, its lease held.
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
    # Nobody is to wait for it.
    child.returncode = 0
    return child.pid


def handed_down() -> int | None:
    """Return the descriptor of the lease that a parent process handed us, once."""
    lease = os.environ.pop(LEASE, None)
    return int(lease) if lease and lease.isdecimal() else None
