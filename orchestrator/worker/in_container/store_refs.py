"""Read the refs in a worker's git directory without letting git read its configuration.

The objects that the refs point at become commits, which the host can keep.
"""

import os
import re
from collections.abc import Iterator

from orchestrator.worker.in_container.commit_graph import LARGEST_COMMIT, CommitGraph
from orchestrator.worker.in_container.host_git import HostGit, Notes
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
        text = read_start(os.path.join(self._store, name)) or self._find_packed(name)
        # protection: refs-cannot-lead-out-of-store
        # protection: chains-of-symbolic-refs-are-limited
        if text.startswith("ref: refs/") and ".." not in text and depth:
            return self.resolve(text.removeprefix("ref: "), depth - 1)
        # protection: refs-must-be-object-ids
        return text if _OBJECT_ID.fullmatch(text) else None

    def _find_packed(self, name: str) -> str:
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
                # protection: length-of-read-ref-lists-limited
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
        # protection: all-stash-entries-are-kept
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


MOST_REFS = 100
"""Maximum number of refs that are kept; further commits become parents of one additional commit."""
_KINDS = ("heads", "tags", "stash")


class RefTargets:
    """The refs in a worker's git directory, and a commit for each ref's object."""

    def __init__(self, git: HostGit, notes: Notes, graph: CommitGraph, base: str) -> None:
        self._git = git
        self._notes = notes
        self._graph = graph
        self._base = base

    def commits(self, refs: StoreRefs, *, without: set[str]) -> dict[str, str]:
        """Return a commit for each ref, by the ref's name; commits in `without` are left out."""
        named: dict[str, str] = {}
        left_out = 0
        for name, found, kind in self._kinds(refs):
            if len(named) == MOST_REFS:
                # Commits are found without their names; the text of a tag is not.
                left_out += kind != "commit"
                continue
            commit = self._commit_of(name, found, kind)
            if commit is not None and commit not in without:
                named[name] = commit
        if left_out:
            self._notes.warn(
                f"refs to tags, trees or blobs beyond the first {MOST_REFS} refs were left out: "
                f"{left_out}"
            )
        return named

    def _kinds(self, refs: StoreRefs) -> list[tuple[str, str, str]]:
        found = dict(refs.all())
        if len(found) > MOST_NAMES:
            self._notes.warn(f"only {MOST_NAMES} of the worker's {len(found)} refs were read")
        names = sorted(found, key=_rank)[:MOST_NAMES]
        asked = "".join(f"{found[name]}\n" for name in names).encode()
        form = ("cat-file", "--batch-check=%(objecttype)", "--buffer")
        kinds = self._git.run(*form, stdin=asked).stdout.decode().splitlines()
        return [(name, found[name], kind) for name, kind in zip(names, kinds, strict=False)]

    def _commit_of(self, name: str, found: str, kind: str) -> str | None:
        """Return a commit that contains a ref's object; None if the worker was given the object."""
        if found in self._graph.parents:
            return found
        if kind == "tag" and found in self._graph.tags:
            return self._of_tag(found)
        if kind.endswith(" missing"):
            self._notes.warn(f"a ref names an object that is missing or unreadable: {name}")
        if kind not in ("tree", "blob") or not self._graph.new_objects([found]):
            return None
        said = f"architect: object that `{name}` named"
        return self._graph.wrap(self._tree(found, kind), self._base, said)

    def _tree(self, found: str, kind: str) -> str:
        """Return a tree object; for a file (blob), a tree that has it under the name `blob`."""
        if kind == "tree":
            return found
        return self._git.text("mktree", stdin=f"100644 blob {found}\tblob\n".encode())

    def _of_tag(self, tag: str) -> str | None:
        """Create a commit with the text of an annotated tag, on top of the object that it tags."""
        ask = self._git.text_or_empty
        target = ask("rev-parse", "--verify", "--quiet", f"{tag}^{{}}")
        kind = ask("cat-file", "-t", target) if target else ""
        size = ask("cat-file", "-s", tag)
        if kind not in ("commit", "tree", "blob") or not size or int(size) > LARGEST_COMMIT:
            self._notes.warn(f"a tag that is damaged or too large was left out: {tag}")
            return None
        text = self._git.run("cat-file", "tag", tag).stdout
        if kind == "commit":
            return self._graph.wrap(f"{target}^{{tree}}", target, "architect: a tag\n\n", text)
        tree = self._tree(target, kind)
        return self._graph.wrap(tree, self._base, "architect: a tag\n\n", text)


def _rank(name: str) -> tuple[int, str]:
    kind = name.partition("/")[0]
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), name)
