"""Check the directories (trees) of new commits. Many are checked in a separate process with limits.

A dozen tree objects can stand for more files than there are atoms, and a pack of a few kilobytes
for gigabytes of trees. So every object is read once, however often it occurs, bounds are checked
before data is stored, and the orchestrator's own process reads few bytes: it leaves larger trees to
a process that may be killed (see `object_reader`). To start quickly, this module imports few
modules, and none of this package.

Reads a JSON object from stdin: `kind` (`harvest` or `merge`), `base` (a tree), `roots` (trees),
`before` (trees; of a merge), `reserved` (names not allowed at the top; `*` at the end of a name
stands for all names with that prefix), `room` (maximum length of a path in bytes) and `bounds`
(arguments of `Bounds`). Prints `{}`, or `{"refused": "<why>"}`.
"""

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MAX_DEPTH = 1000
"""Maximum depth of nested directories; the operating system's limit for paths allows few more."""
_ASKED = 48
"""Number of objects that are requested from git at once. The requests fit into the smallest pipe
buffer: Linux gives a user who already has many pipes only 4096 bytes.
"""
_PATH_MAX = 4095
_NAME_MAX = 255
_KIND = 0o170000
_DIRECTORY, _GITLINK, _LINK, _FILE = 0o040000, 0o160000, 0o120000, 0o100000
# Repeated: `mode name`, NUL, the id as bytes.
_ENTRIES = {
    length: re.compile(rb"([0-7]+) ([^\0]+)\0(.{%d})" % length, re.DOTALL) for length in (20, 32)
}
_GIT_DIRECTORY = frozenset((b"objects", b"refs", b"commondir"))
"""Names in a directory that, together with `HEAD`, make git take the directory for a repository."""
_TELLING = _GIT_DIRECTORY | {b"head"}
_LONGEST_TELLING = max(map(len, _TELLING))

Tree = tuple[int, int, int, tuple[tuple[int, bytes], ...]]
"""What is stored of a directory: number of entries, length of the longest name, length of all names
in bytes; and for each subdirectory, length of its name and its id.
"""


class RefusedError(Exception):
    """A rule is broken; the message names the rule."""


class TooManyObjectsError(Exception):
    """The objects have more bytes than a reader may read."""


class Objects:
    """Reads git objects through a process `git cat-file --batch`."""

    def __init__(self, answers: int, questions: int, *, most: int = sys.maxsize) -> None:
        """Store the file descriptors of git's output and of git's input, which stay open.

        Args:
            answers: File descriptor of git's output.
            questions: File descriptor of git's input.
            most: Largest size of all objects together, in bytes.
        """
        self._answers = os.fdopen(answers, "rb", closefd=False)
        self._questions = questions
        self._room = most

    def read(
        self, names: Iterable[bytes], kind: bytes, *, most: int, total: int | None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield id and content of git objects.

        Args:
            names: Ids of the objects.
            kind: Type that every object must have.
            most: Largest size of one object, in bytes.
            total: Largest size of all objects together, in bytes; None for objects of the
                user's base.

        Raises:
            RefusedError: An object is missing, has another type, or is too large; or git ended.
            TooManyObjectsError: This reader may not read so many bytes.
        """
        wanted = sorted(names)
        for start in range(0, len(wanted), _ASKED):
            batch = wanted[start : start + _ASKED]
            os.write(self._questions, b"".join(name.hex().encode() + b"\n" for name in batch))
            for name in batch:
                fields = self._answers.readline(200).split()
                if len(fields) != 3:
                    raise RefusedError("an object that the worker's commits need is missing")
                if fields[1] != kind:
                    raise RefusedError(
                        "a commit is damaged: one of its directories lists an object under a "
                        "wrong type"
                    )
                size = int(fields[2])
                total = None if total is None else total - size
                # protection: size-of-tree-limited
                # protection: total-size-of-trees-limited
                if size > most or (total is not None and total < 0):
                    raise RefusedError(_TOO_MUCH)
                self._room -= size
                if self._room < 0:
                    raise TooManyObjectsError
                content = self._answers.read(size)
                # Git, killed for its time or memory, may end between an object's size and content.
                # protection: incomplete-answers-of-git-are-refused
                if len(content) != size or self._answers.read(1) != b"\n":
                    raise RefusedError(_TOO_EARLY)
                yield name, content


_TOO_EARLY = "the commits could not be checked: git ended before it had read all directories"
_TOO_MUCH = "the directories of the new commits are too large to check"


class Bounds:
    """Limits for the directories of new commits. The base commit is not limited."""

    def __init__(self, *, entries: int, names: int, tree: int, total: int) -> None:
        """Store the limits.

        Args:
            entries: Files and directories of one commit.
            names: Bytes of all paths of one commit.
            tree: Bytes of one tree object.
            total: Bytes of all tree objects.
        """
        self.entries = entries
        self.names = names
        self.tree = tree
        self.total = total


class TreeIndex:
    """The trees of some commits, each read once. Only names that may be harmful are stored."""

    def __init__(
        self, objects: Objects, *, reserved: Iterable[str] = (), folds: bool = False
    ) -> None:
        """Start with no trees.

        Args:
            objects: Source of the objects.
            reserved: Names to record in `prefixed` where they occur; `*` at the end stands for all
                names with the prefix.
            folds: Whether to record names that differ only in letter case, in `alike`.
        """
        self._objects = objects
        self._prefixes = tuple(os.fsencode(name[:-1]) for name in reserved if name.endswith("*"))
        self._names = frozenset(os.fsencode(name) for name in reserved)
        self._folds = folds
        self._trees: dict[bytes, Tree] = {}
        self._extents: dict[bytes, tuple[int, int, int]] = {}
        self.gitlinks: set[tuple[bytes, bytes]] = set()
        """Name and commit of every submodule."""
        self.links: set[bytes] = set()
        """Id of every symbolic link's target."""
        self.longest_name = 0
        self.disguised: set[bytes] = set()
        """Trees that git would take for a git directory after a checkout."""
        self.prefixed: dict[bytes, set[bytes]] = {}
        """Reserved names by the tree that contains them."""
        self.alike: set[frozenset[bytes]] = set()
        """Names in one directory that are equal on a case-insensitive file system."""

    def read(self, roots: Iterable[bytes], bounds: Bounds | None = None) -> None:
        """Read directories and all their subdirectories.

        Args:
            roots: Ids of the top directories.
            bounds: Limits; None for trees of the user's base.

        Raises:
            RefusedError: A limit is exceeded, or an object is missing.
        """
        most, total = (bounds.tree, bounds.total) if bounds else (sys.maxsize, None)
        wanted = set(roots)
        # protection: depth-of-trees-limited
        for _ in range(MAX_DEPTH):
            # protection: each-tree-is-read-once
            wanted -= self._trees.keys()
            if not wanted:
                return
            below: set[bytes] = set()
            for name, content in self._objects.read(wanted, b"tree", most=most, total=total):
                total = None if total is None else total - len(content)
                tree = self._parse(name, content, bounds.entries if bounds else sys.maxsize)
                below.update(found for _, found in tree[3])
                self._trees[name] = tree
            wanted = below
        raise RefusedError("a path of a committed file is too long to check out")

    def _parse(self, tree: bytes, content: bytes, most: int) -> Tree:
        count = longest = size = end = 0
        directories: list[tuple[int, bytes]] = []
        telling: set[bytes] = set()
        folded: dict[str, set[bytes]] = {}
        length = len(tree)
        # Each entry begins where the last one ended, so the time does not depend on the content.
        while match := _ENTRIES[length].match(content, end):
            end = match.end()
            mode, name, found = match.groups()
            count += 1
            # protection: number-of-files-per-directory-limited
            if count > most:
                raise too_many(most)
            size += len(name)
            if len(name) > longest:
                longest = len(name)
            # Nearly all entries are regular files, of which only the name needs a check.
            if mode not in (b"100644", b"100755"):
                self._note(_kind(mode), name, found, directories)
            # Case is ignored, because some file systems ignore it.
            # protection: disguised-git-directories-are-found-in-any-case
            if len(name) <= _LONGEST_TELLING and name.lower() in _TELLING:
                telling.add(name.lower())
            if name.startswith(self._prefixes) or name in self._names:
                self.prefixed.setdefault(tree, set()).add(name)
            if self._folds:
                folded.setdefault(_fold(name), set()).add(name)
        if end != len(content):
            raise RefusedError("a git tree object (a directory) is damaged")
        if b"head" in telling and len(telling) > 1:
            self.disguised.add(tree)
        self.alike.update(frozenset(names) for names in folded.values() if len(names) > 1)
        self.longest_name = max(self.longest_name, longest)
        return count, longest, size, tuple(directories)

    def _note(
        self, kind: int, name: bytes, found: bytes, directories: list[tuple[int, bytes]]
    ) -> None:
        if kind == _DIRECTORY:
            directories.append((len(name), found))
        elif kind == _LINK:
            self.links.add(found)
        elif kind == _GITLINK:
            self.gitlinks.add((name, found))

    def extent(self, root: bytes) -> tuple[int, int, int]:
        """Return a directory's number of entries, longest path, and total length of all paths."""
        pending = [root]
        while pending:
            count, longest, size, directories = self._trees[pending[-1]]
            unknown = {name for _, name in directories} - self._extents.keys()
            if unknown:
                pending += unknown
                continue
            for own, name in directories:
                inner, deepest, names = self._extents[name]
                count += inner
                longest = max(longest, own + 1 + deepest)
                size += names + (own + 1) * inner
            self._extents[pending.pop()] = count, longest, size
        return self._extents[root]


def _fold(name: bytes) -> str:
    text = name.decode("utf-8", "surrogateescape")
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text.casefold())


def _kind(mode: bytes) -> int:
    """Return the type bits of a file mode; an unknown type counts as a submodule, as in git."""
    # protection: unusual-permission-bits-of-modes-are-ignored
    kind = int(mode, 8) & _KIND
    # protection: unknown-modes-count-as-submodules
    return kind if kind in (_DIRECTORY, _LINK, _FILE) else _GITLINK


def too_many(most: int) -> RefusedError:
    """Return an error for a commit with too many files."""
    return RefusedError(f"a commit has more than {most} files, too many to check out")


def check_harvest(
    objects: Objects,
    base: bytes,
    roots: list[bytes],
    *,
    reserved: Sequence[str],
    room: int,
    bounds: Bounds,
) -> None:
    """Check the directories of new commits; what the base commit already contains is allowed.

    Raises:
        RefusedError: A rule is broken.
    """
    forest = TreeIndex(objects, reserved=reserved)
    forest.read([base])
    entries, longest, names = forest.extent(base)
    bounds.entries = max(bounds.entries, 2 * entries)
    bounds.names = max(bounds.names, 2 * names)
    longest_name = max(_NAME_MAX, forest.longest_name)
    gitlinks, links, disguised = (
        set(found) for found in (forest.gitlinks, forest.links, forest.disguised)
    )
    forest.read(roots, bounds)
    # protection: added-submodules-are-refused
    for name, _ in sorted(forest.gitlinks - gitlinks):
        raise RefusedError(f"a commit adds a submodule or nested repository: {os.fsdecode(name)}")
    allowed = disguised | (set(roots) if base in disguised else set())
    # protection: disguised-git-directories-are-refused
    if forest.disguised - allowed:
        raise RefusedError(
            "a commit contains a git directory: a directory has `HEAD` beside "
            "`objects`, `refs` or `commondir`"
        )
    # protection: length-of-names-limited
    if forest.longest_name > longest_name:
        raise RefusedError("a path of a committed file is too long to check out")
    for root in roots:
        # protection: names-reserved-for-worktrees-are-refused
        for name in sorted(forest.prefixed.get(root, set()) - forest.prefixed.get(base, set())):
            raise RefusedError(
                f"a file has a path that is reserved for workers' worktrees: {os.fsdecode(name)}"
            )
        _check_extent(forest.extent(root), max(room, longest), bounds)
    _check_links(objects, forest.links - links)


def _check_extent(extent: tuple[int, int, int], room: int, bounds: Bounds) -> None:
    entries, longest, names = extent
    # protection: number-of-files-limited
    if entries > bounds.entries:
        raise too_many(bounds.entries)
    # protection: length-of-paths-limited
    if longest > room:
        raise RefusedError("a path of a committed file is too long to check out")
    # protection: total-length-of-paths-limited
    if names > bounds.names:
        raise RefusedError(
            f"the paths of a commit have more than {bounds.names} bytes, too many to check out"
        )


def _check_links(objects: Objects, links: set[bytes]) -> None:
    try:
        # protection: length-of-link-targets-limited
        for _, target in objects.read(links, b"blob", most=_PATH_MAX, total=None):
            # protection: empty-link-targets-are-refused
            if not target:
                raise RefusedError("a committed symbolic link has an empty or too long target")
            # protection: link-targets-with-nul-are-refused
            if b"\0" in target:
                raise RefusedError("a committed symbolic link has a target with a NUL byte")
    except RefusedError as error:
        if str(error) == _TOO_MUCH:
            raise RefusedError(
                "a committed symbolic link has an empty or too long target"
            ) from error
        raise


def check_merge(objects: Objects, before: list[bytes], merged: list[bytes]) -> None:
    """Refuse a merge that creates names which differ only in letter case.

    Args:
        objects: The objects of all commits.
        before: Trees of the commits to merge; names that differ only in case are
            allowed if these trees have them already.
        merged: Trees of the resulting commits.

    Raises:
        RefusedError: The merge creates such names.
    """
    known, new = (TreeIndex(objects, folds=True) for _ in range(2))
    known.read(before)
    new.read(merged)
    for names in sorted(new.alike - known.alike, key=sorted):
        shown = " and ".join(f"`{os.fsdecode(name)}`" for name in sorted(names))
        raise RefusedError(f"the merge would create {shown}, which differ only in letter case")


def _ids(names: Iterable[str]) -> list[bytes]:
    return [bytes.fromhex(name) for name in names]


def verdict(order: Mapping[str, Any], objects: Objects) -> dict[str, str]:
    """Check the trees of a request, and return `{}`, or `refused` with the broken rule.

    Raises:
        TooManyObjectsError: The reader of the objects may not read so many bytes.
    """
    try:
        if order["kind"] == "merge":
            check_merge(objects, _ids(order["before"]), _ids(order["roots"]))
        else:
            check_harvest(
                objects, bytes.fromhex(order["base"]), _ids(order["roots"]),
                reserved=order["reserved"], room=order["room"], bounds=Bounds(**order["bounds"]),
            )  # fmt: skip
    except RefusedError as error:
        return {"refused": str(error)[:2000]}
    return {}


def main(answers: str, questions: str) -> None:
    """Read a request from stdin, check the trees, print the result."""
    order = json.load(sys.stdin)
    sys.stdout.write(json.dumps(verdict(order, Objects(int(answers), int(questions)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
