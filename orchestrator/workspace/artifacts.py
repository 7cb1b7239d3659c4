"""What a worker hands over by files, beside its commits: its findings, and its artifacts.

All of it is hostile. In the worker's state directory:

    handed/       what the worker writes to, `findings.md` and `artifacts/`; gone when it is taken
    artifacts/    what is left of its artifacts: regular files and directories
    findings.md   what it found: text, bounded, without secrets
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.files.atomic import write_atomically
from orchestrator.files.remove_tree import remove_tree
from orchestrator.files.safe_open import open_regular
from orchestrator.text.redact import Redactor
from orchestrator.text.sanitize import lines

HANDED = "handed"
ARTIFACTS = "artifacts"
FINDINGS = "findings.md"
MOST_FINDINGS = 64 * 1024
"""Bytes of one worker's findings."""
MOST_LISTED = 1000
"""Artifacts that a result names."""
_MARGIN = 4096
"""Bytes that are read beyond the findings' end: what is cut must not be half of a secret."""
_LONGEST = 1024
"""Bytes of an artifact's path; what lies deeper is hard for programs to reach."""


@dataclass(frozen=True)
class Handover:
    """What a worker handed over."""

    artifacts: tuple[str, ...] = ()
    """Files, by their paths below `artifacts/`."""
    notes: tuple[str, ...] = ()
    """What was left out, for people."""


def make_place(root: Path, user: tuple[int, int]) -> Path:
    """Return the directory that a worker may write to; one that is there stays.

    Args:
        root: The worker's state directory.
        user: uid and gid of the worker.

    Raises:
        OSError: There is no room for it.
    """
    place = root / HANDED
    if not place.exists():
        half = root / f"{HANDED}.half"
        remove_tree(half)
        (half / ARTIFACTS).mkdir(parents=True)
        for path in (half / ARTIFACTS, half):
            path.chmod(0o700)
            os.chown(path, *user)
        half.rename(place)
    return place


def take(root: Path, redactor: Redactor) -> Handover:
    """Take what a worker handed over, now that it is dead; may be repeated.

    Args:
        root: The worker's state directory.
        redactor: What knows the secrets.

    Raises:
        OSError: It could not be taken; the rest of it is still there.
    """
    place, kept = root / HANDED, root / ARTIFACTS
    notes: list[str] = []
    # Made anew by a process that takes over, it is empty, and what was taken before stays.
    if place.is_dir() and not kept.exists():
        # An ordinary user's worker may have locked its own caller out.
        place.chmod(0o700)
        notes += _take_findings(place / FINDINGS, root / FINDINGS, redactor)
        notes += _take_artifacts(place / ARTIFACTS, kept)
    remove_tree(place)
    if not kept.exists():
        return Handover(notes=tuple(notes))
    found, left_out = _cleaned(kept)
    with suppress(OSError):  # only where there is nothing left of them
        kept.rmdir()
    notes += [f"{count} of its artifacts {why}" for why, count in sorted(left_out.items())]
    if len(found) > MOST_LISTED:
        notes.append(f"only {MOST_LISTED} of its artifacts are listed")
    return Handover(tuple(sorted(found[:MOST_LISTED])), tuple(notes))


def findings(root: Path) -> str:
    """Return the findings that were taken of a worker, if there are any."""
    try:
        return (root / FINDINGS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _take_findings(path: Path, kept: Path, redactor: Redactor) -> Iterator[str]:
    data = _read(path)
    if data is None:
        yield f"its `{FINDINGS}` is no file that can be read"
        return
    if len(data) > MOST_FINDINGS:
        yield f"its findings are longer than {MOST_FINDINGS // 1024} KiB: the rest was left out"
    text = lines(redactor.data(data)[:MOST_FINDINGS].decode("utf-8", "replace"))
    if text.strip():
        write_atomically(kept, text)


def _read(path: Path) -> bytes | None:
    """Read the beginning of a regular file; nothing of none, and None of anything else."""
    try:
        with open_regular(path) as file:
            return file.read(MOST_FINDINGS + _MARGIN)
    except FileNotFoundError:
        return b""
    except OSError:
        return None


def _take_artifacts(handed: Path, kept: Path) -> Iterator[str]:
    try:
        is_directory = stat.S_ISDIR(handed.lstat().st_mode)
    except FileNotFoundError:
        is_directory = False
    else:
        if not is_directory:
            yield f"its `{ARTIFACTS}` is no directory"
    if is_directory:
        # A directory that moves must be writable itself.
        handed.chmod(0o700)
        handed.rename(kept)


def _cleaned(top: Path) -> tuple[list[str], Counter[str]]:
    """Leave regular files and directories, the caller's, and list the files.

    Returns:
        Paths of files, a few more than are shown at most; how many were removed, by the reason.
    """
    found: list[str] = []
    removed: Counter[str] = Counter()
    pending = [""]
    _make_ours(top)
    while pending:
        folder = pending.pop()
        with os.scandir(top / folder) as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                kind = entry.stat(follow_symlinks=False).st_mode
                if len(os.fsencode(path)) > _LONGEST:
                    _remove(Path(entry.path), kind)
                    removed["lay too deep, and were left out"] += 1
                elif stat.S_ISDIR(kind):
                    _make_ours(Path(entry.path))
                    pending.append(f"{path}/")
                elif not stat.S_ISREG(kind):
                    _remove(Path(entry.path), kind)
                    removed["were no files, and were left out"] += 1
                else:
                    _make_ours(Path(entry.path))
                    if len(found) <= MOST_LISTED:
                        found.append(os.fsencode(path).decode("utf-8", "backslashreplace"))
    return found, removed


def _make_ours(path: Path) -> None:
    """Let the caller own a file or directory, with a mode that has nothing special in it."""
    os.chown(path, os.getuid(), os.getgid(), follow_symlinks=False)
    mode = path.lstat().st_mode
    path.chmod(0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o644)


def _remove(path: Path, kind: int) -> None:
    if stat.S_ISDIR(kind):
        remove_tree(path)
    else:
        path.unlink()
