"""Handle `--when-busy`: wait while another run of the repository is live, or exit."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.shared import open_shared
from orchestrator.faces.cli.output.messages import tell
from orchestrator.faces.cli.run_options import RunOptions
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import all_runs

START, WAIT, LEAVE = "start", "wait", "leave"
_PAUSE = 1.0
"""Seconds between two checks whether another run is live."""


@contextmanager
def turn(run: RunOptions) -> Iterator[None]:
    """Wait or exit while another run is live, as `--when-busy` asks; then run the `with` block.

    Raises:
        ConfigError: The option has an invalid value.
        RepositoryError: There is no repository.
    """
    asked = run.when_busy or START
    if asked not in (START, WAIT, LEAVE):
        raise ConfigError(
            "`--when-busy` must be `start`, `wait` or `leave`",
            key="option.invalid",
            hint="`start` is the default",
        )
    if asked == START or run.dry_run:
        yield
        return
    repository = Repository(Path.cwd())
    # Locked until this run has ended or is visible as a running run.
    with os.fdopen(open_shared(repository.state_dir / "turn"), "r") as lock:
        leaves = asked == LEAVE
        reported = False
        while busy := _busy(repository, lock):
            if not (reported or run.quiet):
                tell(f"{busy}: {'nothing was started' if leaves else 'waiting for that run'}")
                reported = True
            if leaves:
                raise typer.Exit(0)
            time.sleep(_PAUSE)
        yield


def _busy(repository: Repository, lock: IO[str]) -> str | None:
    """Return why this run must wait; if it need not, take the lock and return None."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another run of this repository is still running"
    live = next((run for run in all_runs(repository.state_dir) if run.is_live()), None)
    if live is None:
        return None
    whose = f" of {live.other_user}" if live.other_user else ""
    return f"run {live.run_id}{whose} is still running"
