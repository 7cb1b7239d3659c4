"""Search a worker's commits for the values of secrets, to warn the user before publication.

Files of any size, names of files and directories, and commit messages are searched piece by piece,
up to a limit. A note reports what was not searched.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

from orchestrator.base.text.redact import Redactor
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.git.command import Git, records
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.repository import Repository

MAX_OBJECTS = 200_000
"""Maximum number of new git objects that are searched."""
MAX_BYTES = 256 * 1024**2
"""Maximum number of bytes that are searched."""
MOST_PLACES = 5
"""Maximum number of places that a note names for one secret."""
MAX_TIME = 30.0
"""Maximum duration of a search, in seconds."""
SMALL = 1024**2
"""Size in bytes up to which files are searched first, because keys are usually in small files."""
_PIECE = 1024**2
_LONGEST_PATH = 300
"""Maximum number of bytes of a path in a message about a secret."""
_HEADER = 2048
_ASKED = "%(objectname) %(objecttype) %(objectsize) %(rest)"
_PLACES = {
    b"commit": "a commit's message",
    b"tag": "a tag's message",
    b"tree": "the name of a file in {}",
    b"blob": "{}",
}


@dataclass
class Search:
    """Result of a search for secrets."""

    found: dict[str, list[str]] = field(default_factory=dict)
    """Names of the secrets that were found, each with the first places that contain its value (at
    most MOST_PLACES + 1).
    """
    missed: str | None = None
    """Message about what was not searched; None if everything was searched."""

    def note(self, redactor: Redactor, data: bytes, place: str) -> None:
        """Search data for secrets; record `place` for each secret that was found."""
        for name in redactor.names_in(data):
            places, shown = self.found.setdefault(name, []), redactor.text(place)
            # protection: number-of-reported-places-limited
            if len(places) <= MOST_PLACES and shown not in places:
                places.append(shown)


def leaks(
    repository: Repository,
    redactor: Redactor,
    *,
    base: str,
    tips: Sequence[str],
) -> Search:
    """Search the commits between `base` and `tips` for the values of secrets.

    Raises:
        RepositoryError: Git failed or exceeded its limits.
    """
    search = Search()
    if not redactor.has_values:
        return search
    if set(tips) != {base}:
        git = repository.git.within(UNTRUSTED)
        deadline = time.monotonic() + MAX_TIME
        overlap = max(redactor.longest - 1, 0)
        left, room = 0, MAX_BYTES
        with (
            tempfile.TemporaryFile() as listed,
            tempfile.TemporaryFile() as small,
            tempfile.TemporaryFile() as large,
        ):
            has_more = _list_objects(git, base, tips, listed)
            left = _sort_by_size(git, listed, small, large)
            for names in (small, large):
                for piece in _contents(git, names, overlap):
                    # protection: searched-bytes-and-time-limited
                    if room < len(piece.data) or time.monotonic() > deadline:
                        break
                    room -= len(piece.data)
                    left -= piece.is_last
                    search.note(redactor, piece.data, piece.place)
        # protection: unsearched-objects-are-reported
        if has_more:
            search.missed = (
                f"only {MAX_OBJECTS:,} of the worker's new objects were searched for secrets"
            )
        # protection: incomplete-search-is-reported
        elif left:
            rest = f"(objects left: {left:,})"
            search.missed = f"not all of the worker's commits were searched for secrets {rest}"
    return search


def leak_notes(search: Search, branch: str) -> tuple[str, ...]:
    """Return notes for the user about the secrets that were found and what was not searched."""
    notes = []
    for name, places in sorted(search.found.items()):
        shown = ", ".join(one_line(place) for place in places[:MOST_PLACES])
        more = " and further places" if len(places) > MOST_PLACES else ""
        notes.append(f"`{branch}` contains the value of `{name}` in {shown}{more}")
    if search.missed is not None:
        notes.append(search.missed)
    return tuple(notes)


def _list_objects(git: Git, base: str, tips: Sequence[str], into: IO[bytes]) -> bool:
    """Write ids and paths of the objects that `tips` add to `base`, commits first.

    Returns:
        Whether objects were left out, because there are more than `MAX_OBJECTS`.
    """
    with git.reading("rev-list", "--objects", *tips, f"^{base}") as lines:
        for number, line in enumerate(records(lines, b"\n")):
            # protection: number-of-searched-objects-limited
            if number >= MAX_OBJECTS:
                return True
            name, _, path = line.partition(b" ")
            into.write(name + b" " + path[:_LONGEST_PATH] + b"\n")
    return False


def _sort_by_size(git: Git, listed: IO[bytes], small: IO[bytes], large: IO[bytes]) -> int:
    """Split a list of objects into lists of small and large objects; return the total number."""
    listed.seek(0)
    count = 0
    form = ("cat-file", f"--batch-check={_ASKED}", "--buffer")
    with git.reading(*form, stdin=listed) as answers:
        for line in records(answers, b"\n"):
            name, _, size, path = line.split(b" ", 3)
            into = small if int(size) <= SMALL else large
            into.write(name + b" " + path + b"\n")
            count += 1
    return count


@dataclass(frozen=True)
class _Piece:
    data: bytes
    place: str
    is_last: bool


def _contents(git: Git, names: IO[bytes], overlap: int) -> Iterator[_Piece]:
    """Yield the content of objects in pieces; a piece begins with the end of the previous piece."""
    names.seek(0)
    with git.reading("cat-file", f"--batch={_ASKED}", "--buffer", stdin=names) as file:
        while header := file.readline(_HEADER):
            _, kind, size, path = header.rstrip(b"\n").split(b" ", 3)
            place = _PLACES[kind].format(path.decode("utf-8", "replace") or "the top directory")
            rest, before = int(size), b""
            while True:
                # protection: files-are-searched-in-chunks
                data = file.read(min(rest, _PIECE))
                rest -= len(data)
                yield _Piece(before + data, place, is_last=rest <= 0 or not data)
                if rest <= 0 or not data:
                    break
                # protection: values-across-chunk-boundaries-are-found
                before = data[-overlap:] if overlap else b""
            file.read(1)
