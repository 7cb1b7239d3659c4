"""What a worker's commits stand for, told without walking them.

A dozen tree objects can stand for more files than there are atoms. Git walks trees path by path,
and gathers what it meets in memory; here every object is read once, however often it is used.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.git import Git

MAX_DEPTH = 1000
"""Directories inside each other; paths of the system end not far above."""
_MAX_BYTES = 256 * 1024**2
"""Bytes of all trees of one depth."""
_DIRECTORY, _GITLINK = b"40000", b"160000"


class TooDeepError(Exception):
    """There are more directories inside each other than any file system takes."""


@dataclass(frozen=True)
class _Tree:
    entries: int
    directories: tuple[str, ...]
    gitlinks: frozenset[tuple[bytes, str]]


class Forest:
    """The trees of some commits, each read once."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._trees: dict[str, _Tree] = {}
        self._sizes: dict[str, int] = {}

    @property
    def gitlinks(self) -> frozenset[tuple[bytes, str]]:
        """Name and commit of every submodule in what was read."""
        return frozenset(link for tree in self._trees.values() for link in tree.gitlinks)

    def read(self, roots: Iterable[str]) -> None:
        """Read the trees `roots` and all below them.

        Raises:
            TooDeepError: There are more than MAX_DEPTH inside each other.
            GitCommandError: One is missing or damaged.
            OutputTooLongError: They are too large.
        """
        wanted = set(roots)
        for _ in range(MAX_DEPTH):
            wanted -= self._trees.keys()
            if not wanted:
                return
            read = dict(_read(self._git, wanted))
            self._trees |= read
            wanted = {name for tree in read.values() for name in tree.directories}
        raise TooDeepError

    def size(self, root: str) -> int:
        """Count the files and directories that a tree stands for."""
        pending = [root]
        while pending:
            tree = self._trees[pending[-1]]
            unknown = set(tree.directories) - self._sizes.keys()
            if unknown:
                pending += unknown
            else:
                below = sum(self._sizes[name] for name in tree.directories)
                self._sizes[pending.pop()] = tree.entries + below
        return self._sizes[root]


def _read(git: Git, names: set[str]) -> Iterator[tuple[str, _Tree]]:
    wanted = "".join(f"{name}\n" for name in names).encode()
    answer = git.listing("cat-file", "--batch", "--buffer", stdin=wanted, limit=_MAX_BYTES)
    at = 0
    while at < len(answer):
        end = answer.index(b"\n", at)
        name, _, size = answer[at:end].split(b" ")
        at = end + 1 + int(size)
        yield name.decode(), _parse(answer[end + 1 : at], len(name) // 2)
        at += 1


def _parse(content: bytes, id_length: int) -> _Tree:
    """Read `mode name`, NUL, the id as bytes; over and over."""
    entries, at = 0, 0
    directories: list[str] = []
    gitlinks = []
    while at < len(content):
        end = content.index(b"\0", at)
        mode, _, name = content[at:end].partition(b" ")
        at = end + 1 + id_length
        entries += 1
        if mode == _DIRECTORY:
            directories.append(content[end + 1 : at].hex())
        elif mode == _GITLINK:
            gitlinks.append((name, content[end + 1 : at].hex()))
    return _Tree(entries, tuple(directories), frozenset(gitlinks))
