"""List the objects that a commit reaches, with several git processes at the same time.

The history is cut into pieces at ancestors of the commit, each an ancestor of the one before. A
piece is what its newest commit reaches, without what the next cut reaches. Git leaves out no object
but may list one in several pieces, such as a file whose old content came back.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from orchestrator.base.machine import cpu_count
from orchestrator.repository.git.command import Git

_PIECE = 5000
"""Number of commits, following first parents, in each of the newest pieces."""
_EQUAL = 8
"""Number of pieces after which they become larger, so that a very long history has few of them."""
_MOST_PROCESSES = 4
_MOST_COMPARED = 2_000_000
"""Number of objects that are compared at once, in about 200 MB of memory."""
_PREFIX = 15


@dataclass(frozen=True)
class Part:
    """A part of a list of objects, which git is writing."""

    file: IO[bytes]
    listed: "Future[None]"

    def lines(self) -> IO[bytes]:
        """Wait for the part; return its lines, each with an id, a space and a path.

        Raises:
            GitCommandError: Objects are missing or damaged.
        """
        self.listed.result()
        self.file.seek(0)
        return self.file


@contextmanager
def list_reached_objects(
    git: Git,
    common_dir: Path,
    commit: str,
    directory: Path,
    *,
    then: Callable[[IO[bytes]], None] | None = None,
) -> Iterator[list[Part]]:
    """List the objects that a commit reaches, in temporary files that are being written.

    Args:
        git: Repository that has the objects.
        common_dir: That repository's common git directory.
        commit: The commit.
        directory: Directory on whose disk the files are.
        then: Called with the file of each part in one of several threads, after git has written it.

    Raises:
        GitCommandError: Objects are missing or damaged.
    """
    parts = []
    with ExitStack() as files:
        pool = ThreadPoolExecutor(min(_MOST_PROCESSES, cpu_count()))
        try:
            for newest, *cut in _pieces(git, common_dir, commit):
                file = files.enter_context(tempfile.TemporaryFile(dir=directory))
                parts.append(Part(file, pool.submit(_list, git, newest, cut, file, then)))
            yield parts
        finally:
            pool.shutdown(cancel_futures=True)


def _list(
    git: Git,
    newest: str,
    cut: Sequence[str],
    file: IO[bytes],
    then: Callable[[IO[bytes]], None] | None,
) -> None:
    # With a bitmap, git knows the objects without reading them.
    # protection: worker-gets-only-bases-objects
    words = ("rev-list", "--objects", "--use-bitmap-index", newest, "--not", *cut)
    git.run(*words, stdout=file)
    if then is not None:
        then(file)


def count_objects(parts: Sequence[Part], expected: int) -> int:
    """Return the number of different objects in a list, or a smaller number.

    Only the beginnings of ids are compared, which takes less memory.
    """
    if len(parts) == 1:
        return sum(1 for _ in parts[0].lines())
    rounds, number = 1 + expected // _MOST_COMPARED, 0
    for turn in range(rounds):
        found: set[bytes] = set()
        for part in parts:
            found |= {x[:_PREFIX] for x in part.lines() if x[_PREFIX] % rounds == turn}
        number += len(found)
    # protection: objects-that-are-listed-twice-are-counted-once
    return number


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
