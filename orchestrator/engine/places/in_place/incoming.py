"""How the files of a pod's parts arrive, and how they are measured, by a container of their owner.

In a pod nobody is root: the porter's user owns the channels, and another container, with the steps'
user, owns the files. Both run this program, each with a directory of its own.
"""

import hashlib
import json
import os
import resource
import shutil
import stat
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.base.files.disk_usage import DiskUse, disk_use
from orchestrator.engine.places.in_place.records import alone

ARRIVED = "arrived.json"
_FILES, _FILE = "files", "file"
_MOST_FILES = 1_000_000
_MEASURING = 10.0
_MEASURE = 0.5
_FULL = "full.json"
"""How many measurements in a row each step was at its limit on processes."""
_PATIENCE = 5
"""Such measurements after which a step is stopped. A build may be at the limit for a moment."""
_BEAT, _OVER = "porter", "over"
_SILENCE = 120.0
"""Seconds without a sign of life after which the porter, or whoever measures, has died. A full disk
cache or a busy node can stop either for a minute.
"""
_PAUSE = 10.0
"""Most seconds of silence that count between two looks: this process was stopped meanwhile, too."""


def append(root: str, name: str, offset: int, data: bytes) -> None:
    """Write a piece of an archive at its offset, so that a piece can be sent again.

    Raises:
        ValueError: An earlier piece is missing.
    """
    with alone(root, ARRIVED):
        path = _archive(root, name)
        size = path.stat().st_size if path.exists() else 0
        if offset > size:
            raise ValueError("an earlier piece of the files did not arrive")
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(offset)
            file.truncate()
            file.write(data)


def _archive(root: str, name: str) -> Path:
    """Return where an archive arrives: for a part in memory, only in memory."""
    return _top(root, name) / ".arriving"


def _top(root: str, name: str) -> Path:
    """Return the volume of a part, of which steps see one directory or file."""
    return Path(_spec(root)["parts"][name]).parent


def _spec(root: str) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(Path(root, "spec.json").read_text())
    return spec


def unpack_part(root: str, name: str, size: str, sha256: str, known: str) -> None:
    """Let the files of an archive take the place of those of an earlier one, and print `{}`.

    What is mounted is a directory or file that stays the same, so its content is replaced.

    Args:
        root: Directory of this container's own files.
        name: Name of the part.
        size: Size of the archive.
        sha256: Its hash.
        known: Hash that describes the files; it is recorded once they are all there.

    Raises:
        ValueError: The archive is not what was sent.
    """
    with alone(root, ARRIVED):
        # Else the call is a repeated one, of which the answer was lost.
        if _archive(root, name).exists() or _arrived(root).get(name, {}).get("known") != known:
            _unpack(root, name, int(size), sha256, known)
    print("{}", flush=True)


def _unpack(root: str, name: str, size: int, sha256: str, known: str) -> None:
    archive, top, record = _archive(root, name), _top(root, name), _arrived(root)
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    # protection: files-arrive-unaltered-in-pod
    if (archive.stat().st_size, found) != (size, sha256):
        raise ValueError("the files did not arrive completely")
    new = top / ".new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    with tarfile.open(archive, "r:") as opened:
        opened.extractall(new, filter="fully_trusted")  # noqa: S202 - what the client packed
    earlier = record.get(name, {}).get("names", [])
    names = _replace(new, top, earlier)
    record[name] = {"known": known, "names": names}
    half = Path(root, f"{ARRIVED}.half")
    half.write_text(json.dumps(record))
    half.replace(Path(root, ARRIVED))
    archive.unlink()
    shutil.rmtree(new, ignore_errors=True)


def _replace(new: Path, top: Path, earlier: list[str]) -> list[str]:
    if (new / _FILE).exists():
        # A file that is mounted keeps its inode.
        (top / _FILE).write_bytes((new / _FILE).read_bytes())
        shutil.copystat(new / _FILE, top / _FILE)
        return []
    source, target = new / _FILES, top / _FILES
    info, names = source.stat(), os.listdir(source)
    # Files in directories that only can be read are replaced, too.
    source.chmod(0o700)
    target.chmod(0o700)
    for name in names:
        # A name of another owner is where the runtime has mounted something: to replace it would
        # end the mount.
        # protection: mounts-in-parts-of-pod-stay
        if os.path.lexists(target / name) and (target / name).lstat().st_uid != os.getuid():
            continue
        _remove_for(source / name, target / name)
        _move(source / name, target / name)
    for name in set(earlier) - set(names):
        _remove_for(None, target / name)
    target.chmod(info.st_mode & 0o7777)
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
    return names


def _move(source: Path, target: Path) -> None:
    info = source.lstat()
    if not stat.S_ISDIR(info.st_mode):
        source.replace(target)
        return
    # A directory that moves to another one must be writable.
    source.chmod(0o700)
    source.replace(target)
    target.chmod(stat.S_IMODE(info.st_mode))
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))


def _remove_for(new: Path | None, path: Path) -> None:
    """Remove what a new file cannot replace by itself."""
    is_directory = path.is_dir() and not path.is_symlink()
    if is_directory:
        path.chmod(0o700)
        for directory, names, _ in os.walk(path):
            for name in names:
                if not os.path.islink(f"{directory}/{name}"):
                    os.chmod(f"{directory}/{name}", 0o700)
        shutil.rmtree(path)
    elif new is None or (new.is_dir() and not new.is_symlink()):
        path.unlink(missing_ok=True)


def _arrived(root: str) -> dict[str, Any]:
    with suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads(Path(root, ARRIVED).read_text())
        return found
    return {}


def measure(root: str) -> None:
    """Measure what the limits of steps are about, print which files have arrived, and note when.

    Files that change later were changed by steps.
    """
    _measure(root)
    with suppress(FileExistsError), Path(root, "base.json").open("x") as base:
        base.write(json.dumps(time.time()))
    known = {name: entry["known"] for name, entry in _arrived(root).items()}
    print(json.dumps({"arrived": known}), flush=True)


class _Sign:
    """A file that a program in another container changes again and again while it is alive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: int | None = None
        self._silent, self._looked = 0.0, time.monotonic()

    def silence(self) -> float:
        """Return for how many seconds the file has not changed, by this process's clock alone."""
        now = time.monotonic()
        try:
            seen: int | None = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            seen = None
        self._silent += min(now - self._looked, _PAUSE)
        if seen != self._seen:
            self._silent = 0.0
        self._seen, self._looked = seen, now
        return self._silent


def watch(root: str) -> None:
    """Measure until the porter has ended, and with it the place."""
    os.makedirs(f"{root}/output", exist_ok=True)
    usage = Path(_spec(root)["usage"])
    porter = _Sign(usage / _BEAT)
    while porter.silence() < _SILENCE and not (usage / _OVER).exists():
        begun = time.monotonic()
        _measure(root)
        _note_full(root)
        time.sleep(max(_MEASURE, 2 * (time.monotonic() - begun)))


def beat(usage: str | None, *, is_last: bool = False) -> None:
    """Let the container with the files know that the porter is alive, or ends, if there is one."""
    if usage is not None:
        Path(usage, _OVER if is_last else _BEAT).touch()


def _measure(root: str) -> None:
    spec = _spec(root)
    uses: dict[tuple[str, ...], DiskUse] = {}
    for step, limited in spec["limited"].items():
        names = tuple(limited)
        if names not in uses:
            roots = [Path(spec["parts"][name]) for name in names]
            uses[names] = disk_use(roots, most_files=_MOST_FILES, seconds=_MEASURING)
            # protection: files-of-pod-cannot-be-hidden
            if uses[names].hidden:
                _reveal(roots)
                uses[names] = disk_use(roots, most_files=_MOST_FILES, seconds=_MEASURING)
        half = Path(spec["usage"], f".{step}.{os.getpid()}")
        half.write_text(json.dumps(vars(uses[names])))
        half.replace(Path(spec["usage"], f"{step}.json"))


def _note_full(root: str) -> None:
    """Note how many measurements in a row no step could start a process within its limit."""
    spec = _spec(root)
    path = Path(spec["usage"], _FULL)
    before = json.loads(path.read_text()) if path.exists() else {}
    full = {most: _is_full(most) for most in set(spec["processes"].values())}
    found = {
        step: before.get(step, 0) + 1 if full[most] else 0
        for step, most in spec["processes"].items()
    }
    half = path.with_name(f".{_FULL}")
    half.write_text(json.dumps(found))
    half.replace(path)


def _is_full(most: int) -> bool:
    """Return whether the user of this process has that many processes, by trying to start one."""
    own = resource.getrlimit(resource.RLIMIT_NPROC)
    if own[1] != resource.RLIM_INFINITY:
        most = min(most, own[1])
    resource.setrlimit(resource.RLIMIT_NPROC, (most, own[1]))
    try:
        child = os.fork()
    except BlockingIOError:
        return True
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, own)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return False


def keeps_forking(usage: Path, step: str) -> bool:
    """Return whether a step has been at its limit on processes for several measurements."""
    try:
        found = json.loads((usage / _FULL).read_text())
    except FileNotFoundError:
        return False
    return bool(found.get(step, 0) >= _PATIENCE)


def _reveal(roots: list[Path]) -> None:
    """Let directories be read that their owner, a step of the same user, has closed."""
    pending = [str(root) for root in roots]

    def open_up(error: OSError) -> None:
        with suppress(OSError):
            os.chmod(error.filename, 0o700)
            pending.append(error.filename)

    until = time.monotonic() + _MEASURING
    while pending and time.monotonic() < until:
        for _ in os.walk(pending.pop(), onerror=open_up):
            if time.monotonic() >= until:
                break


class Measurements:
    """What the container with the files measures for one step."""

    def __init__(self, usage: str, step: str) -> None:
        self._path = Path(usage, f"{step}.json")
        self._sign = _Sign(self._path)

    def last(self) -> DiskUse:
        """Return the last measurement of the files that the step may write.

        Raises:
            OSError: There is none, or no further ones are made: the limits are not enforced.
        """
        # protection: no-pod-without-measurements
        if self._sign.silence() > _SILENCE:
            raise TimeoutError("the files of the place are not measured any more")
        return DiskUse(**json.loads(self._path.read_text()))
