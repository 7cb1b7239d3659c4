"""Repositories with the state that an earlier version of the orchestrator wrote.

Each directory `tests/data/state-COMMIT` is such a state, recorded by its `record.sh` with the
program of that commit: the history as a stream of `git fast-export`, the files of
`.git/orchestrator`, the names of its directories (git stores no empty directories), and the
branches that were checked out in worktrees.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.repository import git

DATA = Path(__file__).parents[1] / "data"
_RECORDED_AT = b"/home/ann/shop"
_FIRST_USER = 20_000
"""User id of worker 0: if root runs the orchestrator, N is added for worker N."""
_OF_THE_WORKER = ("git", "handed", "harvest", "out", "pointer", "upper")


def restore_old_state(commit: str, repository: Path) -> Path:
    """Create a repository at `repository` from the recording of `commit`."""
    recording = DATA / f"state-{commit}"
    git(repository.parent, "init", "-q", "-b", "main", str(repository))
    git(repository, "config", "user.name", "Ann")
    git(repository, "config", "user.email", "ann@localhost")
    with (recording / "history.txt").open("rb") as history:
        command = ["git", "fast-import", "--quiet"]
        subprocess.run(command, cwd=repository, stdin=history, check=True, timeout=60)
    git(repository, "reset", "-q", "--hard", "main")
    _copy_state(recording, repository)
    for branch in (recording / "worktrees.txt").read_text().splitlines():
        git(repository, "worktree", "add", "-q", f".{branch.replace('/', '-')}", branch)
    return repository


def _copy_state(recording: Path, repository: Path) -> None:
    for name in (recording / "directories.txt").read_text().splitlines():
        (repository / ".git" / name).mkdir(parents=True)
    for file in (recording / "orchestrator").rglob("*"):
        if file.is_file():
            content = file.read_bytes().replace(_RECORDED_AT, bytes(repository))
            (repository / ".git" / file.relative_to(recording)).write_bytes(content)
    if os.getuid() == 0:
        for worker in (repository / ".git" / "orchestrator" / "runs").glob("*/worker-*"):
            _give_to_worker(worker)


def _give_to_worker(directory: Path) -> None:
    user = _FIRST_USER + int(directory.name.removeprefix("worker-"))
    for entry in (directory / name for name in _OF_THE_WORKER):
        if entry.exists():
            for path in (entry, *entry.rglob("*")):
                shutil.chown(path, user, user)
