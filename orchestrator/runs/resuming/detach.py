"""Continue a run in a background process that outlives this process."""

import os
import subprocess
from pathlib import Path

from orchestrator.base.machine import own_command
from orchestrator.state.run_directory import RunDirectory

LEASE = "ORCHESTRATOR_LEASE_FD"
"""Environment variable with the descriptor of the run's lock file, for the background process."""
LOG = "background.log"


def continue_in_background(directory: RunDirectory, *, top: Path) -> int:
    """Start a background process that carries out a run whose workers are already reserved.

    The new process inherits the lease (a lock), so that no other process can take over the run.

    Args:
        directory: The run's directory, its lease held.
        top: The repository's top level.

    Returns:
        The process id.
    """
    lease = directory.lease_descriptor
    with (directory.path / LOG).open("ab") as log:
        child = subprocess.Popen(
            own_command("resume", "--quiet", directory.run_id),
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


def take_inherited_lease() -> int | None:
    """Return the inherited descriptor of the run's lock file on the first call, else None."""
    lease = os.environ.pop(LEASE, None)
    return int(lease) if lease and lease.isdecimal() else None
