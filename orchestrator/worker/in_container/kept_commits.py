"""Store the commits that a worker left outside of its branch, and content that is only staged.

A worker may leave commits on other branches, under tags, in stashes, on a detached HEAD, or in no
ref at all. It may also leave staged content, or an unfinished rebase, bisect, merge or cherry-pick.
Each of these gets a name and is packed, so that the host can check it and keep it under a ref.
"""

import json
import os
import re

from orchestrator.worker.in_container.commit_graph import CommitGraph, WholeHistories
from orchestrator.worker.in_container.host_git import HostGit, Notes, write_pack
from orchestrator.worker.in_container.safe_files import copy_regular, write
from orchestrator.worker.in_container.store_refs import MOST_REFS, RefTargets, StoreRefs

GITLINK = "160000"
"""File mode with which git records a submodule."""
Entries = dict[bytes, tuple[str, str]]
"""File mode and object id of files, by path."""


def index_lines(entries: Entries) -> bytes:
    """Return index entries in the format that `git update-index -z --index-info` reads."""
    lines = (f"{mode} {blob}\t".encode() + path + b"\0" for path, (mode, blob) in entries.items())
    return b"".join(lines)


def commit_index(git: HostGit, parent: str, message: str) -> str:
    """Commit the index on top of `parent`; return `parent` itself if no file differs."""
    tree = git.text("write-tree")
    if tree == git.text("rev-parse", f"{parent}^{{tree}}"):
        return parent
    return git.text("commit-tree", tree, "-p", parent, stdin=message.encode())


def commit_entries(
    git: HostGit, entries: Entries, parent: str, message: str, *, alone: bool = False
) -> str:
    """Commit files on top of a commit; with `alone`, the new commit has no other files."""
    scratch = {"GIT_INDEX_FILE": os.path.join(git.places.git_dir, "scratch-index")}
    git.text("read-tree", "--empty" if alone else parent, env=scratch)
    form = ("update-index", "--add", "-z", "--index-info")
    git.text(*form, stdin=index_lines(entries), env=scratch)
    tree = git.text("write-tree", env=scratch)
    return git.text("commit-tree", tree, "-p", parent, stdin=message.encode())


def carry_over(git: HostGit, *, at: str, made: str, tip: str, message: str) -> str | None:
    """Apply the changes from commit `at` to commit `made` on top of the commit `tip`.

    Returns:
        The last commit; None if `made` and `tip` changed a file in different ways, or git failed.
    """
    changed, meanwhile = _differences(git, at, made), _differences(git, at, tip)
    both = changed.keys() & meanwhile.keys()
    if any(changed[path] != meanwhile[path] for path in both):
        return None
    entries = {path: entry for path, entry in changed.items() if path not in both}
    if not entries:
        return tip
    try:
        return commit_entries(git, entries, tip, message)
    except RuntimeError:
        return None


def _differences(git: HostGit, commit: str, other: str) -> Entries:
    form = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=none")
    fields = git.paths("diff-tree", *form, commit, other)
    words = (head.decode().split(" ") for head in fields[::2])
    return {path: (w[1], w[3]) for path, w in zip(fields[1::2], words, strict=True)}


LARGEST_BLOB = 100 << 20
"""Maximum size in bytes of a staged file that is kept; other files have the same limit."""
LARGEST_INDEX = 256 << 20
"""Maximum size in bytes of a git index that is read."""
_SHARED_INDEX = re.compile(r"sharedindex\.[0-9a-f]{40}(?:[0-9a-f]{24})?")


class WorkerIndex:
    """A copy of the worker's own git index."""

    def __init__(self, git: HostGit, notes: Notes) -> None:
        """Copy the index out of the worker's git directory; add a warning if it cannot be read."""
        self._git = git
        self._store = git.places.store
        copy = os.path.join(git.places.git_dir, "worker-index")
        self._env = {"GIT_INDEX_FILE": copy}
        source = os.path.join(self._store, "index")
        self._readable = copy_regular(source, copy, largest=LARGEST_INDEX)
        if self._readable:
            # protection: split-indexes-are-read
            found = [name for name in os.listdir(self._store) if _SHARED_INDEX.fullmatch(name)]
            for name in found[:10]:
                target = os.path.join(self._git.places.git_dir, name)
                copy_regular(os.path.join(self._store, name), target, largest=LARGEST_INDEX)
            self._readable = git.run("ls-files", "-u", "-z", env=self._env).returncode == 0
        self.too_large: list[bytes] = []
        """Paths of staged files that are too large to be kept, found by the last call of `_sound`.
        """
        if not self._readable and os.path.lexists(source):
            notes.warn("the worker's git index is unreadable: content that was only staged is lost")

    def _lines(self, *arguments: str) -> list[bytes]:
        if not self._readable:
            return []
        done = self._git.run(*arguments, env=self._env)
        return done.stdout.split(b"\0")[:-1] if done.returncode == 0 else []

    def differences(self, commit: str) -> Entries:
        """Return the staged files that differ from a commit."""
        form = ("-z", "--cached", "--raw", "--no-abbrev", "--no-renames", "--diff-filter=AMT")
        lines = self._lines("diff-index", *form, "--ignore-submodules=none", commit)
        found = {}
        for head, path in zip(lines[::2], lines[1::2], strict=False):
            _, mode, _, blob, _ = head.decode().split(" ")
            if mode != GITLINK:
                found[path] = (mode, blob)
        return self._sound(found)

    def modes(self) -> dict[bytes, str]:
        """Return the mode of each file in the worker's index."""
        found = {}
        for line in self._lines("ls-files", "-s", "-z"):
            head, _, path = line.partition(b"\t")
            mode = head.partition(b" ")[0].decode()
            if mode != GITLINK:
                found[path] = mode
        return found

    def conflicts(self) -> Entries:
        """Return the versions of conflicting files, in directories named by stage number."""
        found = {}
        for line in self._lines("ls-files", "-u", "-z"):
            head, _, path = line.partition(b"\t")
            mode, blob, stage = head.decode().split(" ")
            if mode != GITLINK:
                found[stage.encode() + b"/" + path] = (mode, blob)
        return self._sound(found)

    def not_checked_out(self) -> set[bytes]:
        """Return the paths that are missing only because of a sparse checkout."""
        return {line[2:] for line in self._lines("ls-files", "-t", "-z") if line[:2] == b"S "}

    def _sound(self, found: Entries) -> Entries:
        """Return the entries whose content exists, is not empty, and is not too large."""
        asked = "".join(f"{blob}\n" for _, blob in found.values()).encode()
        form = "--batch-check=%(objecttype) %(objectsize)"
        answers = self._git.run("cat-file", form, "--buffer", stdin=asked).stdout.splitlines()
        answered = list(zip(found.items(), answers, strict=False))
        sizes = {path: int(a[5:]) for (path, _), a in answered if a.startswith(b"blob ")}
        self.too_large = [path for path, size in sizes.items() if size > LARGEST_BLOB]
        return {path: found[path] for path, size in sizes.items() if 0 < size <= LARGEST_BLOB}


MOST_PARENTS = 1000
"""Maximum number of parents of the commit `rest`, which keeps the commits beyond `MOST_REFS`."""
PART_WAY = ("HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD")
"""Files in which git records the commits of unfinished operations."""


class KeptCommits:
    """Collects commits that are kept in addition to the worker's branch, each with a name."""

    def __init__(self, git: HostGit, notes: Notes, graph: CommitGraph, base: str) -> None:
        """Start without any commit."""
        self._git = git
        self._notes = notes
        self._graph = graph
        self._base = base
        self._kept: dict[str, str] = {}

    def keep_commit(self, name: str, commit: str, parent: str) -> None:
        """Record, under a name, a commit that was created in this container."""
        self._kept[name] = commit
        self._graph.parents[commit] = (parent,)

    def keep_index(self, index: WorkerIndex, at: str, made: str) -> None:
        """Record sides of conflicts, and staged content that neither commit `at` nor `made` has."""
        staged = index.differences(at)
        for path in index.too_large[:MOST_REFS]:
            note = f"staged content over {LARGEST_BLOB >> 20} MiB was left out"
            self._notes.warn(f"{note}: {os.fsdecode(path)}")
        differing = index.differences(made)
        only = {path: entry for path, entry in staged.items() if differing.get(path) == entry}
        if only:
            note = "architect: staged content that differs from the files"
            # protection: content-that-is-only-staged-is-kept
            self.keep_commit("index", commit_entries(self._git, only, at, note), at)
        sides = index.conflicts()
        # protection: sides-of-conflict-are-kept
        if sides:
            said = "architect: the sides of a conflict: 1 common, 2 ours, 3 theirs"
            commit = commit_entries(self._git, sides, at, said, alone=True)
            self.keep_commit("conflict", commit, at)

    def keep_others(self, refs: StoreRefs, tip: str, *, without: str | None) -> None:
        """Find and name the worker's commits that neither `tip` nor `without` contains.

        `tip` is the last of the worker's own commits on the branch; `without` is a commit whose
        history was deliberately replaced by one commit.
        """
        graph = self._graph
        graph.read()
        reached = graph.reachable([tip, *([without] if without else [])])
        named = RefTargets(self._git, self._notes, graph, self._base).commits(refs, without=reached)
        rest = graph.parents.keys() - reached
        rest -= graph.reachable([*named.values(), *self._kept.values()])
        heads = rest - {parent for commit in rest for parent in graph.parents[commit]}
        labels = {refs.resolve(name): name for name in reversed(PART_WAY)}
        # protection: commits-without-ref-are-kept
        for commit in sorted(heads):
            named.setdefault(labels.get(commit) or f"unreachable/{commit[:12]}", commit)
        whole = WholeHistories(self._git, self._notes, graph, self._base).of(named)
        self._kept = {**self._few(whole), **self._kept}

    def _few(self, named: dict[str, str]) -> dict[str, str]:
        """Return a limited number of named commits; one more commit has the others as parents."""
        if len(named) <= MOST_REFS:
            return named
        names = list(named)
        few, many = names[: MOST_REFS - 1], names[MOST_REFS - 1 :]
        if len(many) > MOST_PARENTS:
            left = len(many) - MOST_PARENTS
            self._notes.warn(f"{left} of the worker's commits without a ref were left out")
        said = "architect: further commits of the worker, each a parent of this one"
        rest = self._join([named[name] for name in many[:MOST_PARENTS]], said)
        return {**{name: named[name] for name in few}, "rest": rest}

    def _join(self, commits: list[str], message: str) -> str:
        """Create a commit that has all given commits as parents and the same files as the base."""
        tree = self._git.text("rev-parse", f"{self._base}^{{tree}}")
        parents = [word for commit in commits for word in ("-p", commit)]
        return self._git.text("commit-tree", tree, *parents, stdin=message.encode())

    def write(self) -> None:
        """Write the file `kept` with names and commits, and `kept.pack` with their objects.

        The pack contains one more commit, with all kept commits as parents, which the host checks.
        """
        if not self._kept:
            return
        said = "architect: all that is kept of a worker besides its branch"
        bundle = self._join([self._base, *self._kept.values()], said)
        write_pack(self._git, "kept.pack", tip=bundle, base=self._base)
        kept = {"bundle": bundle, "refs": list(self._kept.items())}
        write(os.path.join(self._git.places.out, "kept"), json.dumps(kept))
