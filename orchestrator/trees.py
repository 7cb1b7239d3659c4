"""What a worker's commits stand for, told without walking them.

A dozen tree objects can stand for more files than there are atoms. Git walks trees path by path,
and gathers what it meets in memory; here every object is read once, however often it is used.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.git import Git

MAX_DEPTH = 1000
"""Directories inside each other; paths of the system end not far above."""
_MAX_BYTES = 256 * 1024**2
"""Bytes of all trees of one depth."""
_KIND = 0o170000
_DIRECTORY, _GITLINK, _LINK, _FILE = 0o040000, 0o160000, 0o120000, 0o100000
# `mode name`, NUL, the id as bytes; over and over.
_ENTRIES = {
    length: re.compile(rb"([0-7]+) ([^\0]+)\0(.{%d})" % length, re.DOTALL) for length in (20, 32)
}
_GIT_DIRECTORY = frozenset((b"objects", b"refs", b"commondir"))
"""Beside a HEAD, any of these makes a directory one that git takes for its own."""


class TooDeepError(Exception):
    """There are more directories inside each other than any file system takes."""


@dataclass(frozen=True)
class _Tree:
    names: frozenset[bytes]
    directories: tuple[tuple[bytes, str], ...]
    gitlinks: frozenset[tuple[bytes, str]]
    links: frozenset[str]

    @property
    def longest_name(self) -> int:
        return max(map(len, self.names), default=0)

    @property
    def alike(self) -> Iterator[frozenset[bytes]]:
        folded: dict[str, set[bytes]] = {}
        for name in self.names:
            folded.setdefault(_folded(name), set()).add(name)
        return (frozenset(names) for names in folded.values() if len(names) > 1)

    @property
    def is_disguised(self) -> bool:
        # Without regard to case: some file systems have none.
        names = {name.lower() for name in self.names}
        return b"head" in names and not names.isdisjoint(_GIT_DIRECTORY)


def _folded(name: bytes) -> str:
    text = name.decode("utf-8", "surrogateescape")
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text.casefold())


@dataclass(frozen=True)
class _Extent:
    """What one tree and all below it come to."""

    size: int
    longest: int


class Forest:
    """The trees of some commits, each read once."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._trees: dict[str, _Tree] = {}
        self._extents: dict[str, _Extent] = {}

    @property
    def gitlinks(self) -> frozenset[tuple[bytes, str]]:
        """Name and commit of every submodule in what was read."""
        return frozenset(link for tree in self._trees.values() for link in tree.gitlinks)

    @property
    def links(self) -> frozenset[str]:
        """Every symbolic link in what was read."""
        return frozenset(link for tree in self._trees.values() for link in tree.links)

    @property
    def longest_name(self) -> int:
        """Bytes of the longest name in what was read."""
        return max((tree.longest_name for tree in self._trees.values()), default=0)

    @property
    def disguised(self) -> frozenset[str]:
        """Trees in what was read that git would take for a git directory, once checked out."""
        return frozenset(name for name, tree in self._trees.items() if tree.is_disguised)

    @property
    def alike(self) -> frozenset[frozenset[bytes]]:
        """Names beside each other that are one to a file system without regard to case."""
        return frozenset(names for tree in self._trees.values() for names in tree.alike)

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
            wanted = {found for tree in read.values() for _, found in tree.directories}
        raise TooDeepError

    def names(self, root: str) -> frozenset[bytes]:
        """Give the names right in a tree."""
        return self._trees[root].names

    def size(self, root: str) -> int:
        """Count the files and directories that a tree stands for."""
        return self._extent(root).size

    def longest(self, root: str) -> int:
        """Count the bytes of the longest path in a tree."""
        return self._extent(root).longest

    def _extent(self, root: str) -> _Extent:
        pending = [root]
        while pending:
            tree = self._trees[pending[-1]]
            unknown = {name for _, name in tree.directories} - self._extents.keys()
            if unknown:
                pending += unknown
                continue
            below = [(len(name) + 1, self._extents[found]) for name, found in tree.directories]
            self._extents[pending.pop()] = _Extent(
                size=len(tree.names) + sum(extent.size for _, extent in below),
                longest=max([tree.longest_name, *(own + e.longest for own, e in below)]),
            )
        return self._extents[root]


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
    entries = _ENTRIES[id_length].findall(content)
    if sum(len(mode) + len(name) + id_length + 2 for mode, name, _ in entries) != len(content):
        raise ValueError("not a tree")
    found: dict[int, list[tuple[bytes, str]]] = {_DIRECTORY: [], _GITLINK: [], _LINK: [], _FILE: []}
    for mode, name, object_id in entries:
        # Nearly all are these two, and of them the name is enough.
        if mode not in (b"100644", b"100755"):
            found[_kind(mode)].append((name, object_id.hex()))
    return _Tree(
        names=frozenset(name for _, name, _ in entries),
        directories=tuple(found[_DIRECTORY]),
        gitlinks=frozenset(found[_GITLINK]),
        links=frozenset(link for _, link in found[_LINK]),
    )


def _kind(mode: bytes) -> int:
    """Tell what a mode stands for as git does: by its first bits, and all else is a submodule."""
    kind = int(mode, 8) & _KIND
    return kind if kind in (_DIRECTORY, _LINK, _FILE) else _GITLINK
