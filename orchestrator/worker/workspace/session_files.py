"""Keep the files of an agent's session, and give them to the next container of the same worker.

The files are hostile, and nothing here interprets them. In the state directory of an attempt:

    session/         what the container writes, mounted at `/session`; removed when taken
    session.kept/    the files that another container needs to continue
    session.json     id and size of the session; the kept files are complete
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.redact import Redactor
from orchestrator.engine.interface.spec import BindMount

WRITTEN = "session"
"""Name of the directory that the container writes to."""
_HALF = f"{WRITTEN}.half"
_KEPT = f"{WRITTEN}.kept"
_RECORD = f"{WRITTEN}.json"
MOST_BYTES = 64 * 1024**2
"""Maximum size in bytes of all files of a session together."""
MOST_FILES = 2000
"""Maximum number of files of a session."""
_MOST_SEEN = 20_000
"""Maximum number of directory entries that are looked at."""
_NAME = r"[\w.-]+"
_TEXT = (".jsonl", ".txt")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class KeptSession(BaseModel):
    """A session that another container can continue."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    files: int
    size: int


class UnkeptSessionError(Exception):
    """The files of a session are not kept; the message says why."""


def make_session(
    root: Path, user: tuple[int, int], target: str, *, before: Path | None
) -> BindMount:
    """Return the mount of an attempt's session; create its directory unless it exists.

    Args:
        root: The state directory of the attempt.
        user: The worker's user, who owns the files.
        target: Path in the container.
        before: State directory of the attempt whose session is continued; None: a new session.

    Raises:
        OSError: The disk is full.
    """
    place = root / WRITTEN
    if not place.exists():
        half = root / _HALF
        remove_tree(half)
        half.mkdir(mode=0o700)
        for path in _listed(before / _KEPT) if before is not None else ():
            copy = half / path
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy.write_bytes((before / _KEPT / path).read_bytes() if before else b"")
            copy.chmod(0o600)
        for path in (half, *half.rglob("*")):
            os.chown(path, *user, follow_symlinks=False)
        half.rename(place)
    return BindMount(source=place, target=target, read_only=False)


def kept_session(root: Path) -> KeptSession | None:
    """Return the session that was kept after an attempt; None if there is none."""
    try:
        return KeptSession.model_validate_json((root / _RECORD).read_bytes())
    except (OSError, ValidationError):
        return None


def discard_session(root: Path) -> None:
    """Remove the files of a session that is not kept."""
    remove_tree(root / WRITTEN)


def forget_session(root: Path) -> None:
    """Remove everything of a session, which cannot be continued then."""
    (root / _RECORD).unlink(missing_ok=True)
    for name in (WRITTEN, _HALF, _KEPT):
        remove_tree(root / name)


def keep_session(
    root: Path, session_id: str, patterns: Sequence[str], redactor: Redactor
) -> KeptSession | None:
    """Keep the files of a session that has ended; return None if it has no files.

    Repeating the call is safe. The directory that the container wrote to is removed.

    Args:
        root: The state directory of the attempt.
        session_id: Id of the session, whose form was checked.
        patterns: Paths of the files that are kept: `*` is any text in one name, and `{id}` the id.
        redactor: Knows the secrets.

    Raises:
        UnkeptSessionError: The files are too many or too large, or contain a secret.
        OSError: The disk is full.
    """
    known = kept_session(root)
    place, kept = root / WRITTEN, root / _KEPT
    if known is not None or not place.exists():
        return known
    try:
        remove_tree(kept)
        count = size = 0
        # A worker with the caller's user id may have removed the caller's permissions.
        with suppress(OSError):
            place.chmod(0o700)
        for path, data in _read(place, session_id, patterns):
            count, size = count + 1, size + len(data)
            # protection: size-of-kept-sessions-limited
            if count > MOST_FILES or size > MOST_BYTES:
                raise UnkeptSessionError(
                    f"it has more than {MOST_FILES} files or {MOST_BYTES // 1024**2} MiB"
                )
            _keep(kept / path, data, redactor)
    except BaseException:
        remove_tree(kept)
        raise
    finally:
        remove_tree(place)
    if not count:
        return None
    record = KeptSession(id=session_id, files=count, size=size)
    write_private(root / _RECORD, record.model_dump_json().encode())
    return record


def _keep(path: Path, data: bytes, redactor: Redactor) -> None:
    """Write one file of a session without secrets."""
    # protection: kept-sessions-have-no-secrets
    clean = redactor.data(data)
    if clean != data and not path.name.endswith(_TEXT):
        raise UnkeptSessionError("it contains the value of a secret")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, clean)


def _read(place: Path, session_id: str, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the regular files that match a pattern; follow no link."""
    left = [_MOST_SEEN]
    for pattern in patterns:
        names = [_expression(name, session_id) for name in pattern.split("/")]
        try:
            top = os.open(place, _DIRECTORY)
        except OSError:
            return
        yield from _below(top, "", names, left)


def _expression(name: str, session_id: str) -> re.Pattern[str]:
    parts = name.replace("{id}", session_id).split("*")
    return re.compile(_NAME.join(map(re.escape, parts)), re.ASCII)


def _below(
    folder: int, prefix: str, names: Sequence[re.Pattern[str]], left: list[int]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files below an open directory, which is closed; `left` entries are looked at."""
    try:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                left[0] -= 1
                # protection: entries-of-session-directories-limited
                if left[0] < 0:
                    raise UnkeptSessionError(f"it has more than {_MOST_SEEN} directory entries")
                if names[0].fullmatch(entry.name):
                    found.append(entry.name)
        for name in sorted(found):
            try:
                if len(names) > 1:
                    below = os.open(name, _DIRECTORY, dir_fd=folder)
                    yield from _below(below, f"{prefix}{name}/", names[1:], left)
                    continue
                # protection: only-regular-files-of-session-are-kept
                with open_regular(name, folder=folder) as file:
                    data = file.read(MOST_BYTES + 1)
            except OSError:
                continue
            yield f"{prefix}{name}", data
    except OSError:
        return
    finally:
        os.close(folder)


def _listed(kept: Path) -> Iterator[Path]:
    """Yield the paths of kept files, which this process wrote."""
    for path in kept.rglob("*"):
        if stat.S_ISREG(path.lstat().st_mode):
            yield path.relative_to(kept)
