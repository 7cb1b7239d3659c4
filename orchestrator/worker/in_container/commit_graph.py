"""Read the commits that a worker created, how they are connected, and which are complete."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator

from orchestrator.worker.in_container.host_git import HostGit, Notes

MOST_OBJECTS = 1_000_000
"""Maximum number of objects in a worker's git directory that are listed."""
MOST_COMMITS = 50_000
"""Maximum number of commits in a worker's git directory that are read."""
LARGEST_COMMIT = 1 << 20
"""Maximum size in bytes of a commit or tag that is read."""
_PARENT = re.compile(rb"^parent ([0-9a-f]+)$", re.MULTILINE)
_NO_OTHERS = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": ""}


class CommitGraph:
    """The commits in a worker's git directory, and the parents of each."""

    def __init__(self, git: HostGit, notes: Notes) -> None:
        """Start without commits; `read` fills the graph."""
        self._git = git
        self._notes = notes
        self.parents: dict[str, tuple[str, ...]] = {}
        """Parents of every commit that the worker or this harvest created."""
        self.tags: set[str] = set()
        """Ids of the annotated tags in the worker's git directory."""

    def read(self) -> None:
        """Read the parents of every commit that the worker created."""
        objects = os.path.join(self._git.places.store, "objects")
        commits: list[str] = []
        for name, kind, size in self._list_objects(objects):
            if kind == "tag":
                self.tags.add(name)
            elif size > LARGEST_COMMIT:
                self._notes.warn(f"a commit that is too large was left out: {name} ({size} bytes)")
            else:
                commits.append(name)
        new = self.new_objects(commits)
        if len(new) > MOST_COMMITS:
            self._notes.warn(f"only {MOST_COMMITS} of the worker's {len(new)} commits were read")
        self.parents |= dict(self._parse_commits(new[:MOST_COMMITS]))

    def has_commits(self, objects: str) -> bool:
        """Return whether an object directory has any commits or tags."""
        return any(True for _ in self._list_objects(objects))

    def _list_objects(self, objects: str) -> Iterator[tuple[str, str, int]]:
        """Yield id, type and size of the commits and tags in one object directory."""
        form = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
        process = subprocess.Popen(
            ["git", "cat-file", "--batch-all-objects", "--unordered", form],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            env={**self._git.env, "GIT_OBJECT_DIRECTORY": objects, **_NO_OTHERS},
        )  # fmt: skip
        with process:
            for number, line in enumerate(process.stdout or ()):
                if number == MOST_OBJECTS:
                    process.kill()
                    self._notes.warn(
                        "the worker's git directory is too large: only a part of it was searched"
                    )
                    return
                words = line.decode().split()
                if len(words) == 3 and words[1] in ("commit", "tag"):
                    yield words[0], words[1], int(words[2])

    def new_objects(self, objects: Iterable[str]) -> list[str]:
        """Return the objects that the worker created; objects that it was given are left out."""
        ordered = sorted(set(objects))
        given = {"GIT_OBJECT_DIRECTORY": self._git.places.objects, **_NO_OTHERS}
        asked = "".join(f"{name}\n" for name in ordered).encode()
        done = self._git.run("cat-file", "--batch-check", "--buffer", stdin=asked, env=given)
        answers = done.stdout.splitlines()
        return [n for n, line in zip(ordered, answers, strict=False) if line.endswith(b" missing")]

    def _parse_commits(self, commits: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        asked = "".join(f"{name}\n" for name in commits).encode()
        content = self._git.run("cat-file", "--batch", "--buffer", stdin=asked).stdout
        at = 0
        while at < len(content):
            end = content.index(b"\n", at)
            words = content[at:end].split(b" ")
            at = end + 1
            if len(words) == 3:
                size = int(words[2])
                head = content[at : at + size].partition(b"\n\n")[0]
                yield words[0].decode(), tuple(p.decode() for p in _PARENT.findall(head))
                at += size + 1

    def reachable(self, commits: Iterable[str]) -> set[str]:
        """Return the given commits and all commits that they reach."""
        reached, pending = set[str](), list(commits)
        while pending:
            commit = pending.pop()
            if commit not in reached:
                reached.add(commit)
                pending += self.parents.get(commit, ())
        return reached

    def wrap(self, tree: str, parent: str, message: str, more: bytes = b"") -> str:
        """Create a commit of `tree` on top of `parent`; `more` is appended to the message."""
        made = self._git.text(
            "commit-tree", self._git.text("rev-parse", tree), "-p", parent,
            stdin=message.encode() + more.replace(b"\0", b""),
        )  # fmt: skip
        self.parents[made] = (parent,)
        return made


MOST_CHECKS = 1000
"""Maximum number of searches for incomplete histories."""


class WholeHistories:
    """Finds commits whose history lacks objects, and keeps at least the files of such commits."""

    def __init__(self, git: HostGit, notes: Notes, graph: CommitGraph, base: str) -> None:
        self._git = git
        self._notes = notes
        self._graph = graph
        self._base = base

    def of(self, named: dict[str, str]) -> dict[str, str]:
        """Return commits by name; in place of a damaged history, a new commit with its files."""
        whole: dict[str, str] = {}
        pending, checks = [list(named.items())], 0
        while pending:
            group = pending.pop()
            checks += 1
            if checks > MOST_CHECKS:
                said = f"too many commits are damaged; further commits left out: {len(group)}"
                self._notes.warn(said)
            elif self._is_complete(commit for _, commit in group):
                whole.update(group)
            elif len(group) > 1:
                half = len(group) // 2
                pending += [group[half:], group[:half]]
            else:
                whole.update(self._files_of(*group[0]))
        return whole

    def _files_of(self, name: str, commit: str) -> dict[str, str]:
        """Return a new commit, by name, with the files of `commit`; empty if files are missing."""
        if not self._is_complete([f"{commit}^{{tree}}"]):
            self._notes.warn(f"a damaged commit could not be kept: `{name}` ({commit})")
            return {}
        said = f"architect: the files of {commit}, whose history is damaged"
        self._notes.warn(f"only the files of a commit with a damaged history are kept: `{name}`")
        return {name: self._graph.wrap(f"{commit}^{{tree}}", self._base, said)}

    def _is_complete(self, names: Iterable[str]) -> bool:
        asked = "".join(f"{name}\n" for name in (*names, f"^{self._base}")).encode()
        form = ("rev-list", "--objects", "--quiet", "--stdin")
        return self._git.run(*form, stdin=asked).returncode == 0
