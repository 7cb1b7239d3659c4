"""List the objects that a commit reaches, with several git processes at the same time.

The history is cut into pieces at ancestors of the commit, each an ancestor of the one before. A
piece is what its newest commit reaches, without what the next cut reaches. Git leaves out no object
but may list one in several pieces, such as a file whose old content came back.
"""

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from orchestrator.git.command import Git

_PIECE = 5000
"""Number of commits, following first parents, in each of the newest pieces."""
_EQUAL = 8
"""Number of pieces after which they become larger, so that a very long history has few of them."""
_MOST_PROCESSES = 4
_COMPARED = 2_000_000
"""Number of lines that are compared at once, in about 200 MB of memory."""
_PREFIX = 15


@dataclass(frozen=True)
class Reached:
    """A list of the objects that a commit reaches."""

    listing: IO[bytes]
    """Ids and paths, one object per line."""
    lines: int
    pieces: int

    def count(self) -> int:
        """Return the number of different objects, or a smaller number.

        Only the beginnings of ids are compared, which takes less memory. The position in the file,
        which a git process may share, is not changed.
        """
        if self.pieces == 1:
            return self.lines
        rounds = 1 + self.lines // _COMPARED
        found = 0
        with mmap.mmap(self.listing.fileno(), 0, access=mmap.ACCESS_READ) as text:
            for number in range(rounds):
                text.seek(0)
                every = iter(text.readline, b"")
                found += len({line[:_PREFIX] for line in every if line[_PREFIX] % rounds == number})
        return found


@contextmanager
def reached_objects(git: Git, common_dir: Path, commit: str, directory: Path) -> Iterator[Reached]:
    """List the objects that a commit reaches, in a temporary file.

    Args:
        git: Repository that has the objects.
        common_dir: That repository's common git directory.
        commit: The commit.
        directory: Directory on whose disk the file is.

    Raises:
        GitCommandError: Objects are missing or damaged.
    """
    with tempfile.TemporaryFile(dir=directory) as listing:
        pieces = _list(git, _pieces(git, common_dir, commit), listing, directory)
        listing.seek(0)
        lines = sum(block.count(b"\n") for block in iter(lambda: listing.read(1 << 20), b""))
        yield Reached(listing, lines, pieces)


def _list(git: Git, pieces: Iterable[tuple[str, ...]], listing: IO[bytes], directory: Path) -> int:
    """Write the lists of all pieces into a file, and return the number of pieces."""
    listed = []
    with ExitStack() as opened:
        pool = ThreadPoolExecutor(min(_MOST_PROCESSES, len(os.sched_getaffinity(0))))
        try:
            for newest, *cut in pieces:
                part = opened.enter_context(tempfile.TemporaryFile(dir=directory))
                # With a bitmap, git knows the objects without reading them.
                words = ("rev-list", "--objects", "--use-bitmap-index", newest, "--not", *cut)
                listed.append((part, pool.submit(git.run, *words, stdout=part)))
            for part, done in listed:
                done.result()
                part.seek(0)
                shutil.copyfileobj(part, listing, 1 << 20)
                part.close()
        finally:
            pool.shutdown(cancel_futures=True)
    return len(listed)


def _pieces(git: Git, common_dir: Path, commit: str) -> Iterator[tuple[str, ...]]:
    """Yield the newest commit of each piece, with the cut that follows; the last piece has none."""
    newest = commit
    if not any((common_dir / "objects" / "pack").glob("*.bitmap")):
        with git.reading("rev-list", "--first-parent", commit) as chain:
            size, number = _PIECE, 1
            while line := next(islice(chain, size, None), b""):
                cut = line.decode().strip()
                yield newest, cut
                newest, number = cut, number + 1
                # One line has been read beyond the piece: the first of the next one.
                size = _PIECE * (1 + number // _EQUAL) - 1
    yield (newest,)
