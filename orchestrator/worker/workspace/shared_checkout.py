"""Checkouts that several workers share, each as the read-only lower layer of its overlay.

They are used by runs whose worktrees appear at the end, or never. A checkout is kept for later runs
that start from the same files. `checkouts/` in the state directory, which only the caller may
enter, contains:

    lock             held while a checkout is chosen, made or removed
    KEY-NUMBER/tree  the files
    KEY-NUMBER/git   git directory of the tree, with its index; no worker sees it
    KEY-NUMBER/seal  hash of the metadata of all files, from when they were written
"""

import hashlib
import json
import os
import struct
import threading
from contextlib import AbstractContextManager
from itertools import count
from operator import attrgetter
from pathlib import Path

from orchestrator.base.files.disk_usage import disk_use
from orchestrator.base.files.owner import own_place
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.objects.private_place import private_place
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_outline import read_outline
from orchestrator.worker.workspace.file_times import make_older, make_younger
from orchestrator.worker.workspace.worker_user import shared_user

KEPT_UNUSED = 2
"""Number of unused checkouts that are kept for later runs."""
_PLACE = "checkouts"
_RECORD = "checkouts"
"""Name of the file in a run's directory that lists the checkouts which the run uses."""
_HALF, _GONE = ".half", ".gone"
_MOST_FILES = 100_000
"""Maximum number of files whose sizes are added up before checkouts are removed."""
_SEAL = "seal"
_NUMBERS = struct.Struct("=5Q2q")
"""A file's mode, inode, owner, group, size, and times in nanoseconds, in a seal."""


class Checkouts:
    """The checkouts that the workers of one run share."""

    def __init__(self, repository: Repository, directory: RunDirectory) -> None:
        self._repository = repository
        self._record = directory.path / _RECORD
        self._known: dict[str, Path] = {}
        self._threads = threading.Lock()

    def take(self, commit: str, branch: str) -> Worktree:
        """Return a checkout of a commit, which is kept until the run has ended.

        Args:
            commit: The commit.
            branch: The branch of the worker that uses the checkout.

        Raises:
            OrchestratorError: The checkout could not be created.
            OSError: The disk is full.
        """
        with self._threads:
            root = self._known.get(commit)
            if root is None or not root.is_dir():
                root = self._known[commit] = self._find(commit)
        return _opened(root, branch)

    def _find(self, commit: str) -> Path:
        repository = self._repository
        with _locked(repository) as place:
            key = _key(repository, commit)
            candidates = (place / f"{key}-{number}" for number in count(1))
            # A checkout that was changed is not repaired: workers of another run may be using it.
            # protection: changed-checkout-is-not-shared
            root = next(c for c in candidates if not c.exists() or is_intact(c))
            if not root.exists():
                _make(repository, commit, place, root)
            os.utime(root)
            with self._record.open("a") as record:
                record.write(f"{root.name}\n")
        return root


def _opened(root: Path, branch: str) -> Worktree:
    return Worktree(path=root / "tree", branch=branch, git_dir=root / "git")


def _locked(repository: Repository) -> AbstractContextManager[Path]:
    """Hold the lock for changes of checkouts, and yield their directory."""
    again = "creates it again with the files of its base"
    place = own_place(repository.state_dir, _PLACE)
    return private_place(place, again=again, git_keeps_lock=True)


def _key(repository: Repository, commit: str) -> str:
    """Return a name that is equal for checkouts with the same files."""
    settings = {k: v for k, v in repository.git_config.items() if k.startswith("core.")}
    # protection: checkouts-are-shared-only-with-equal-attributes
    files = (
        repository.git_dir / "info" / "sparse-checkout",
        repository.common_dir / "info" / "attributes",
    )
    # protection: checkouts-are-shared-only-with-equal-settings
    parts = {
        "tree": repository.git.text("rev-parse", f"{commit}^{{tree}}"),
        "owner": shared_user(),
        "settings": settings,
        "files": [file.read_text("latin-1") if file.is_file() else None for file in files],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _make(repository: Repository, commit: str, place: Path, root: Path) -> None:
    """Check out a commit at `root`; the directory appears only when all files are written."""
    half = place / _HALF
    # protection: incomplete-checkout-is-not-shared
    remove_tree(half)
    worktree = _opened(half, "")
    worktree.path.mkdir(parents=True)
    (worktree.git_dir / "info").mkdir(parents=True)
    (worktree.git_dir / "HEAD").write_text(f"{commit}\n")
    (worktree.git_dir / "commondir").write_text(f"{repository.common_dir}\n")
    patterns = repository.git_dir / "info" / "sparse-checkout"
    if patterns.is_file():
        (worktree.git_dir / "info" / patterns.name).write_bytes(patterns.read_bytes())
    owner = shared_user()
    worktree.write_files(repository, commit, owner=owner if owner[0] != os.getuid() else None)
    # Docker would create a missing mount point itself, as root.
    (worktree.path / ".git").touch()
    index = worktree.git_dir / "index"
    over = make_older(repository, worktree.path, index)
    (half / _SEAL).write_text(_seal(half))
    if over is not None:
        make_younger(index, over)
    half.rename(root)


def is_intact(root: Path) -> bool:
    """Return whether a checkout is unchanged since it was created.

    Only metadata is read: no program can set the time at which the kernel saw the last change of a
    file's content, owner or mode.
    """
    try:
        return (root / _SEAL).read_text() == _seal(root)
    except OSError:
        return False


def _seal(root: Path) -> str:
    """Return a hash of the metadata of a checkout's files and directories, and of its index."""
    worktree = _opened(root, "")
    # protection: index-of-shared-checkout-is-compared
    digest = hashlib.sha256((worktree.git_dir / "index").read_bytes())
    # With many thousands of files, one digest of packed numbers is faster than text of each file.
    folders = [(os.fsencode(worktree.path), b"")]
    while folders:
        folder, prefix = folders.pop()
        with os.scandir(folder) as found:
            entries = sorted(found, key=attrgetter("name"))
        for entry in entries:
            path, info = prefix + entry.name, entry.stat(follow_symlinks=False)
            # protection: owners-of-shared-checkout-are-compared
            numbers = (info.st_mode, info.st_ino, info.st_uid, info.st_gid, info.st_size)
            # protection: change-times-of-shared-checkout-are-compared
            times = (info.st_mtime_ns, info.st_ctime_ns)
            digest.update(path + b"\0" + _NUMBERS.pack(*numbers, *times))
            if entry.is_dir(follow_symlinks=False):
                folders.append((entry.path, path + b"/"))
    return digest.hexdigest()


def prune_checkouts(repository: Repository, *, keep: int) -> int:
    """Remove unused checkouts except the `keep` newest; return the removed size in bytes.

    A checkout is in use until its run has ended and all of the run's workers have results.

    Raises:
        RepositoryError: The directory of the checkouts is not the caller's.
    """
    if not own_place(repository.state_dir, _PLACE).exists():
        return 0
    with _locked(repository) as place:
        used = {name for run in all_runs(repository.state_dir) for name in _used_by(run)}
        # protection: checkout-in-use-is-kept
        found = [path for path in place.iterdir() if path.is_dir() and path.name not in used]
        left = [path for path in found if path.name.startswith(".")]
        whole = [path for path in found if path not in left]
        whole.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        going = [*left, *whole[keep:]]
        freed = disk_use(going, most_files=_MOST_FILES).size
        for path in going:
            # No run may use a checkout that is partly removed.
            gone = place / f"{_GONE}-{path.name.removeprefix('.')}"
            path.rename(gone)
            remove_tree(gone)
    return freed


def _used_by(run: RunDirectory) -> list[str]:
    try:
        names = split_lines((run.path / _RECORD).read_text())
    except OSError:
        return []
    # The results of a live run need not be read.
    if run.is_live() or (record := read_outline(run)) is None:
        return names
    return [] if all(run.result(worker.worker_id) for worker in record.workers) else names
