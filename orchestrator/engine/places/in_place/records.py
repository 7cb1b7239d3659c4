"""What the porter keeps on a volume that no step sees: the journal, and the output of steps."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.base.files.disk_usage import disk_use
from orchestrator.base.files.walk import Walk
from orchestrator.base.machine import uptime
from orchestrator.base.text.split_lines import split_lines
from orchestrator.engine.places.in_place.archive import ArchiveError, pack

_FRAME = 32 * 1024
_LOOK = 0.05
_OPENED = "opened"
"""Name of the file that says when the journal was opened, by the clock `uptime`."""
_NAME = re.compile(r"[a-z][a-z0-9-]*(\.stdout|\.stderr)?")
MOST_FILES = 200_000
"""Maximum number of files and directories that are taken from a part."""


@contextmanager
def alone(root: str, what: str) -> Iterator[None]:
    """Let only one command at a time change some files, until the block or the process ends.

    A command whose connection was cut goes on, while the client repeats it.
    """
    with Path(root, f"{what}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Journal:
    """What happened in the place, one line of JSON for each event."""

    def __init__(self, root: str) -> None:
        self._path = Path(root, "journal")
        earlier = _entries(self._path)
        self.last = {entry["step"]: entry for entry in earlier}
        """The last entry of each step that an earlier porter of the place recorded."""
        self._number = len(earlier)
        self._opened = uptime() - (earlier[-1]["age"] if earlier else 0.0)
        Path(root, _OPENED).write_text(str(self._opened))

    def add(self, event: str, step: str, **details: object) -> None:
        """Add an entry."""
        self._number += 1
        age = round(uptime() - self._opened, 3)
        entry = {"number": self._number, "age": age, "event": event, "step": step, **details}
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


class Output:
    """One stream of a step's output; a second file says that it is complete."""

    def __init__(self, root: str, name: str, *, is_over: bool = False) -> None:
        """Create the file; if the output is over, what an earlier porter kept is complete."""
        self._path = Path(root, "output", name)
        self._path.with_name(f"{name}.complete").unlink(missing_ok=True)
        self._file = self._path.open("ab" if is_over else "wb", buffering=0)
        self.size = 0
        self.is_complete = False
        if is_over:
            self.complete()

    def write(self, data: bytes) -> None:
        """Add bytes to the output."""
        self._file.write(data)
        self.size += len(data)

    def complete(self) -> None:
        """Record that there is no more output."""
        self._file.close()
        self._path.with_name(f"{self._path.name}.complete").touch()


def print_journal(root: str, after: str) -> None:
    """Print the entries of the journal after a number, with their times by this machine's clock."""
    entries = _entries(Path(root, "journal"))[int(after) :]
    if entries:
        opened = time.time() - uptime() + float(Path(root, _OPENED).read_text())
        entries = [{**entry, "at": opened + entry["age"]} for entry in entries]
    print(json.dumps({"entries": entries}), flush=True)


def _entries(path: Path) -> list[dict[str, Any]]:
    lines = split_lines(path.read_text()) if path.exists() else []
    if lines and not lines[-1].endswith("}"):
        lines.pop()  # the porter died while it wrote
    return [json.loads(line) for line in lines]


def print_data(root: str, seconds: str, *places: str) -> None:
    """Print data of the place from given offsets on, as it comes, in frames.

    A frame is a line of JSON with name, offset, length and SHA-256, and then the bytes. The last
    line says whether everything was printed.

    Args:
        root: Directory of the porter's own files.
        seconds: Time after which no further data is waited for.
        places: Names of data, each followed by an offset.
    """
    until = time.monotonic() + float(seconds)
    left = {checked_name(name): int(at) for name, at in zip(places[::2], places[1::2], strict=True)}
    while left:
        waits = True
        for name, at in list(left.items()):
            path = Path(root, "output", name)
            # Looked for first: what was complete before the read is read completely.
            is_complete = path.with_name(f"{name}.complete").exists()
            data = _piece(path, at)
            if data:
                sha256 = hashlib.sha256(data).hexdigest()
                _print({"name": name, "at": at, "length": len(data), "sha256": sha256}, data)
                left[name] += len(data)
                waits = False
            elif is_complete:
                del left[name]
                waits = False
        if waits and time.monotonic() >= until:
            break
        if waits:
            time.sleep(_LOOK)
    _print({"final": not left})


def _piece(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(_FRAME)
    except FileNotFoundError:
        return b""


def _print(header: dict[str, Any], data: bytes = b"") -> None:
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n" + data)
    sys.stdout.buffer.flush()


def checked_name(name: str) -> str:
    """Return the name of some data of the place.

    Raises:
        ValueError: There cannot be such data.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"the place has no data {name!r}")
    return name


def part_directory(root: str, name: str) -> Path:
    """Return the directory of a part.

    Raises:
        ValueError: The place has no such part.
    """
    parts = json.loads(Path(root, "spec.json").read_text())["parts"]
    if name not in parts:
        raise ValueError(f"the place has no part {name!r}")
    return Path(parts[name])


def settle(root: str, part: str, folder: str) -> None:
    """Let the files in a new directory of a part in memory take the place of all others there."""
    top = Path(json.loads(Path(root, "spec.json").read_text())["memory"][part])
    new = top / checked_name(folder)
    with alone(root, part):
        # The client repeats the call if it got no answer.
        if new.exists():
            names = os.listdir(new)
            for name in names:
                os.replace(new / name, top / name)
            for path in top.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name not in names:
                    path.unlink()
    print(json.dumps({}), flush=True)


def print_usage(root: str, most_files: str, seconds: str, *parts: str) -> None:
    """Print how much space the files in some parts need."""
    roots = [part_directory(root, part) for part in parts]
    use = disk_use(roots, most_files=int(most_files), seconds=float(seconds))
    print(json.dumps(vars(use)), flush=True)


def print_changed(root: str, part: str, most: str, seconds: str) -> None:
    """Print paths of files in a part that were created or changed since the first step began."""
    base = Path(root, "base.json")
    since = json.loads(base.read_text()) if base.exists() else float("inf")
    walk = Walk(part_directory(root, part), most=int(most), until=time.monotonic() + float(seconds))
    changed = ((path, info) for path, info in walk if info.st_ctime > since)
    paths = [path for path, info in changed if not stat.S_ISDIR(info.st_mode)]
    print(json.dumps({"paths": paths}), flush=True)


def pack_part(root: str, part: str, limit: str, amount: str) -> None:
    """Pack the regular files and directories of a part, and print how long the archive is.

    `read` prints the archive, under the name of the part.

    Args:
        root: Directory of the porter's own files.
        part: Name of the part.
        limit: Maximum size of the files in bytes.
        amount: `all`, or `fitting` to leave out what exceeds a limit.
    """
    target = Path(root, "output", checked_name(part))
    source = part_directory(root, part)
    omitted: list[str] | None = [] if amount == "fitting" else None
    with alone(root, part):
        pieces = pack(source, limit=int(limit), most=MOST_FILES, omitted=omitted)
        size, sha256 = _write_archive(pieces, target)
    target.with_name(f"{part}.complete").touch()
    if omitted is None:
        kinds = (stat.S_IFMT(info.st_mode) for _, info in Walk(source, most=MOST_FILES))
        left_out = sum(kind not in (stat.S_IFREG, stat.S_IFDIR) for kind in kinds)
    else:
        left_out = len(omitted)
    answer = {"size": size, "sha256": sha256, "left_out": left_out}
    print(json.dumps(answer), flush=True)


def _write_archive(pieces: Iterator[bytes], target: Path) -> tuple[int, str]:
    """Write an archive, which appears as a whole, and return its size and its hash."""
    half = target.with_name(f"{target.name}.{os.getpid()}")
    digest = hashlib.sha256()
    try:
        with half.open("wb") as file:
            for data in pieces:
                digest.update(data)
                file.write(data)
            size = file.tell()
        half.rename(target)
    except ArchiveError as error:
        raise ValueError(str(error)) from error
    finally:
        half.unlink(missing_ok=True)
    return size, digest.hexdigest()
