"""Read the refs in a worker's git directory without letting git read its configuration."""

import os
import re
from collections.abc import Iterator

from orchestrator.worker.in_container.safe_files import open_regular, read_start

LARGEST_LIST = 256 << 20
"""Maximum number of bytes read from the list of packed refs, in all searches together."""
MOST_NAMES = 2000
"""Maximum number of refs that are read in a worker's git directory."""
_LOG = 1 << 20
_PACKED = 4 << 20
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class StoreRefs:
    """The refs in a worker's git directory, which are all untrusted."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._unread = LARGEST_LIST
        """Bytes of the list of packed refs that may still be read."""

    def resolve(self, name: str, depth: int = 5) -> str | None:
        """Return the object id that a ref points at; None if there is none."""
        text = read_start(os.path.join(self._store, name)) or self._packed(name)
        if text.startswith("ref: refs/") and ".." not in text and depth:
            return self.resolve(text.removeprefix("ref: "), depth - 1)
        return text if _OBJECT_ID.fullmatch(text) else None

    def _packed(self, name: str) -> str:
        wanted = f" {name}\n".encode()
        for line in self._lines(os.path.join(self._store, "packed-refs")):
            if line.endswith(wanted):
                return line.partition(b" ")[0].decode(errors="replace")
        return ""

    def _lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a regular file; long lines are split, and all calls share a limit."""
        file = open_regular(path)
        if file is None:
            return
        with file:
            while self._unread > 0 and (line := file.readline(1 << 16)):
                self._unread -= len(line)
                yield line

    def all(self) -> Iterator[tuple[str, str]]:
        """Yield refs with their object ids; stashes also as `stash/0` (newest), `stash/1` etc."""
        for line in read_start(os.path.join(self._store, "packed-refs"), _PACKED).split("\n"):
            found, _, name = line.partition(" ")
            if name.startswith("refs/") and _OBJECT_ID.fullmatch(found):
                yield _short(name), found
        for name in self._loose():
            if found := self.resolve(name) or "":
                yield _short(name), found
        log = read_start(os.path.join(self._store, "logs", "refs", "stash"), _LOG)
        entries = (line.split(" ")[1] for line in reversed(log.split("\n")) if line.count(" ") > 1)
        for number, entry in enumerate(entries):
            if _OBJECT_ID.fullmatch(entry):
                yield f"stash/{number}", entry

    def _loose(self) -> Iterator[str]:
        count = 0
        for folder, _, files in os.walk(os.path.join(self._store, "refs")):
            for name in files:
                count += 1
                if count > 2 * MOST_NAMES:
                    return
                yield os.path.relpath(os.path.join(folder, name), self._store)


def _short(name: str) -> str:
    name = name.removeprefix("refs/")
    return "stash/0" if name == "stash" else name
