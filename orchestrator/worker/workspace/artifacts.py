"""Collect files that a worker hands over in addition to its commits: findings and artifacts.

All of them are hostile. In the worker's state directory:

    handed/       written by the worker, with `findings.md` and `artifacts/`; removed when collected
    artifacts/    the collected artifacts: regular files and directories only
    findings.md   the collected findings: text, limited in size, without secrets
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.copy_bytes import copy_bytes
from orchestrator.base.files.output import output_directory
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.files.walk import Folders, Walk
from orchestrator.base.text.redact import Redactor
from orchestrator.base.text.sanitize import lines

HANDED = "handed"
HANDED_HALF = f"{HANDED}.half"
"""Name of the directory `handed` while it is being created."""
ARTIFACTS = "artifacts"
FINDINGS = "findings.md"
MOST_FINDINGS = 64 * 1024
"""Maximum size in bytes of one worker's findings."""
MOST_LISTED = 1000
"""Maximum number of artifacts that a worker's result lists."""
# protection: truncation-does-not-hide-secrets
_MARGIN = 4096
"""Number of bytes that are read beyond the limit of the findings, so that no secret at the end is
cut in half and missed.
"""
_MOST_COPIED = 1_000_000
"""Maximum number of artifacts of a worker that are copied or read."""
_BESIDE_HEAD = frozenset({"objects", "refs", "commondir"})
"""Names in a directory that, together with `HEAD`, make git take the directory for a repository."""
# protection: copy-replaces-nothing
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST = 1024
"""Maximum length in bytes of an artifact's path, because programs cannot easily open files with
longer paths.
"""


@dataclass(frozen=True)
class Handover:
    """The files that a worker handed over."""

    artifacts: tuple[str, ...] = ()
    """Paths of the artifacts below the directory `artifacts/`."""
    notes: tuple[str, ...] = ()
    """Messages for the user about files that were left out."""


def make_place(root: Path, user: tuple[int, int]) -> Path:
    """Return the directory in which a worker hands over files; create it unless it exists.

    Raises:
        OSError: The disk is full.
    """
    place = root / HANDED
    if not place.exists():
        half = root / HANDED_HALF
        remove_tree(half)
        (half / ARTIFACTS).mkdir(parents=True)
        for path in (half / ARTIFACTS, half):
            path.chmod(0o700)
            os.chown(path, *user)
        half.rename(place)
    return place


def take(root: Path, redactor: Redactor) -> Handover:
    """Collect the files that a worker handed over before it ended. Repeating the call is safe.

    Raises:
        OSError: Not all files could be collected; the other files stay where they are.
    """
    place, kept = root / HANDED, root / ARTIFACTS
    notes: list[str] = []
    # If artifacts were collected before, `place` is empty: a process that resumed the run created
    # it again.
    # protection: collected-artifacts-are-not-replaced
    if place.is_dir() and not kept.exists():
        # A worker with the caller's user id may have removed the caller's permissions.
        place.chmod(0o700)
        notes += _take_findings(place / FINDINGS, root / FINDINGS, redactor)
        notes += _take_artifacts(place / ARTIFACTS, kept)
    remove_tree(place)
    if not kept.exists():
        return Handover(notes=tuple(notes))
    found, left_out = _cleaned(kept)
    with suppress(OSError):  # only empty directories can be removed
        kept.rmdir()
    notes += [f"{count} of the worker's artifacts {why}" for why, count in sorted(left_out.items())]
    if len(found) > MOST_LISTED:
        notes.append(f"only {MOST_LISTED} of the worker's artifacts are listed")
    # protection: number-of-listed-artifacts-limited
    return Handover(tuple(sorted(found[:MOST_LISTED])), tuple(notes))


def collected(root: Path) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the path and the open file of each collected artifact of a worker, in no order."""
    top = root / ARTIFACTS
    if not top.is_dir():
        return
    folders = Folders(top)
    try:
        for path, info in Walk(top, most=_MOST_COPIED):
            # protection: no-link-or-special-file-is-copied
            if stat.S_ISREG(info.st_mode):
                folder, _, name = path.rpartition("/")
                with open_regular(name, folder=folders.open(folder)) as file:
                    yield path, file
    finally:
        folders.close()


def copy_collected(root: Path, target: Path) -> None:
    """Copy the collected artifacts of a worker to a directory that the user named.

    Args:
        root: The worker's state directory.
        target: The directory, created if there are artifacts. It contains none of these files yet.

    Raises:
        OSError: A file could not be copied; the others were.
    """
    problem: OSError | None = None
    for path, file in collected(root):
        try:
            # Earlier versions collected parts of git repositories too.
            # protection: no-part-of-git-repository-is-copied
            if _is_of_git(root / ARTIFACTS / path, path):
                raise PermissionError(errno.EACCES, "parts of git repositories are not copied")
            _copy(file, target / path)
        except OSError as error:
            problem = problem or error
    if problem is not None:
        raise problem


def _is_of_git(place: Path, path: str) -> bool:
    is_head = place.name.lower() == "head"
    beside = is_head and any(place.with_name(name).exists() for name in _BESIDE_HEAD)
    return beside or ".git" in path.lower().split("/")


def _copy(file: BinaryIO, place: Path) -> None:
    mode = 0o777 if os.fstat(file.fileno()).st_mode & stat.S_IXUSR else 0o666
    with output_directory(place.parent) as folder:
        made = os.open(place.name, _NEW, mode, dir_fd=folder)
        try:
            copy_bytes(file.fileno(), made)
        finally:
            os.close(made)


def findings(root: Path) -> str:
    """Return the collected findings of a worker; empty if there are none."""
    try:
        return (root / FINDINGS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _take_findings(path: Path, kept: Path, redactor: Redactor) -> Iterator[str]:
    data = _read(path)
    if data is None:
        yield f"the worker's `{FINDINGS}` is not a readable file"
        return
    if len(data) > MOST_FINDINGS:
        yield (
            f"the worker's findings are longer than {MOST_FINDINGS // 1024} KiB: the rest "
            "was left out"
        )
    # protection: findings-are-clean-text
    text = lines(redactor.data(data)[:MOST_FINDINGS].decode("utf-8", "replace"))
    if text.strip():
        write_atomically(kept, text)


def _read(path: Path) -> bytes | None:
    """Return a regular file's beginning; empty if there is no file, None if it is not regular."""
    try:
        # protection: findings-are-not-read-from-links-or-fifos
        with open_regular(path) as file:
            # protection: size-of-findings-limited
            return file.read(MOST_FINDINGS + _MARGIN)
    except FileNotFoundError:
        return b""
    except OSError:
        return None


def _take_artifacts(handed: Path, kept: Path) -> Iterator[str]:
    try:
        # protection: artifacts-are-not-read-through-link
        is_directory = stat.S_ISDIR(handed.lstat().st_mode)
    except FileNotFoundError:
        is_directory = False
    else:
        if not is_directory:
            yield f"the worker's `{ARTIFACTS}` is not a directory"
    if is_directory:
        # Moving a directory requires write permission for the directory itself.
        handed.chmod(0o700)
        handed.rename(kept)


def _cleaned(top: Path) -> tuple[list[str], Counter[str]]:
    """Remove all but regular files and directories, become their owner, and list the files.

    Git executes programs that the configuration of a repository names, even for `git status`.
    Therefore no directory stays a repository.

    Returns:
        Paths of at most MOST_LISTED + 1 files, and the number of removed entries by reason.
    """
    found: list[str] = []
    removed: Counter[str] = Counter()
    pending = [""]
    _make_ours(top)
    while pending:
        folder = pending.pop()
        with os.scandir(top / folder) as entries:
            # Case is ignored, because some file systems ignore it.
            is_git = any(entry.name.lower() in _BESIDE_HEAD for entry in entries)
        # protection: bare-repositories-are-recognised
        of_git = {".git", "head"} if is_git else {".git"}
        with os.scandir(top / folder) as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                # protection: types-of-artifacts-are-read-without-following-links
                kind = entry.stat(follow_symlinks=False).st_mode
                # protection: artifacts-with-long-paths-are-removed
                if len(os.fsencode(path)) > _LONGEST:
                    _remove(Path(entry.path), kind)
                    removed["had too long a path and were left out"] += 1
                # protection: no-artifact-is-part-of-git-repository
                elif entry.name.lower() in of_git:
                    _remove(Path(entry.path), kind)
                    removed["were parts of git repositories and were left out"] += 1
                elif stat.S_ISDIR(kind):
                    _make_ours(Path(entry.path))
                    pending.append(f"{path}/")
                # protection: links-and-special-files-are-removed-from-artifacts
                elif not stat.S_ISREG(kind):
                    _remove(Path(entry.path), kind)
                    removed["were not regular files and were left out"] += 1
                else:
                    _make_ours(Path(entry.path))
                    if len(found) <= MOST_LISTED:
                        found.append(os.fsencode(path).decode("utf-8", "backslashreplace"))
    return found, removed


def _make_ours(path: Path) -> None:
    """Make the caller the owner of a file or directory, with ordinary permissions."""
    os.chown(path, os.getuid(), os.getgid(), follow_symlinks=False)
    mode = path.lstat().st_mode
    # protection: set-user-id-bits-are-removed-from-artifacts
    path.chmod(0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o644)


def _remove(path: Path, kind: int) -> None:
    if stat.S_ISDIR(kind):
        remove_tree(path)
    else:
        path.unlink()
