"""Runs INSIDE the harvest's container: finds commits of a worker's git store outside its branch.

A worker may leave commits on other branches, under tags, in stashes, on a detached HEAD, or in no
ref; content that is only staged; or an unfinished rebase, bisect, merge or cherry-pick. All of it
gets a name and is packed, so that the host can check it and keep it in refs.

Like `pack_work`, this module reaches the container as text, so it imports only the standard
library. Everything in the store may be hostile. Git reads the store's objects and a copy of its
index, never its configuration.
"""

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

MOST_REFS = 100
"""Most kept refs; further commits become the parents of one commit."""
MOST_PARENTS = 1000
"""Most parents of that commit."""
MOST_CHECKS = 1000
"""Most searches for incomplete histories."""
MOST_OBJECTS = 1_000_000
"""Most objects of a store that are listed."""
MOST_COMMITS = 50_000
"""Most commits of a store that are read."""
LARGEST_COMMIT = 1 << 20
"""Largest commit or tag that is read, in bytes."""
LARGEST_BLOB = 100 << 20
"""Largest staged file that is kept, in bytes; the same as for files."""
LARGEST_INDEX = 256 << 20
"""Largest index that is read, in bytes."""
MOST_NAMES = 2000
"""Most refs of a store that are read."""
PART_WAY = ("HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD")
"""Files in which git records the commits of unfinished operations."""
_LOG = 1 << 20
_PACKED = 4 << 20
_KINDS = ("heads", "tags", "stash")
_PARENT = re.compile(rb"^parent ([0-9a-f]+)$", re.MULTILINE)
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_GITLINK = "160000"
_NO_OTHERS = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": ""}
_PACK = ("pack-objects", "--revs", "--stdout", "--thin", "-q", "--delta-base-offset")
_SHARED_INDEX = re.compile(r"sharedindex\.[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Tools(Protocol):
    """Interface of the harvest: git on the directory that the host created, and safe reading."""

    store: str
    objects: str
    out: str
    env: dict[str, str]

    def git(self, *arguments: str, stdin: bytes = b"", check: bool = True) -> str:
        """Run git and return its stdout as text."""

    def start(
        self, *arguments: str, stdin: bytes = b"", **variables: str
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run git with additional variables and return the completed process."""

    def read(self, path: str, limit: int = 1024) -> str:
        """Return the start of a regular file, following no link."""

    def resolve(self, name: str) -> str | None:
        """Return the object id that a ref of the store points at."""

    def warn(self, text: str) -> None:
        """Report work that could not be kept; such messages come before all notes."""


class Index:
    """A copy of the worker's own index."""

    def __init__(self, tools: Tools) -> None:
        """Copy the index out of the store."""
        self._tools = tools
        self._path = os.path.join(tools.env["GIT_DIR"], "worker-index")
        self._copied = _copy(os.path.join(tools.store, "index"), self._path)
        for name in self._shared() if self._copied else ():
            target = os.path.join(tools.env["GIT_DIR"], name)
            _copy(os.path.join(tools.store, name), target)
        self.too_large: list[bytes] = []
        """Paths of staged files that are too large to be kept, found by the last call of `_sound`.
        """
        self._readable = self._copied and self._run("ls-files", "-u", "-z").returncode == 0
        if not self._readable and os.path.lexists(os.path.join(tools.store, "index")):
            tools.warn("the worker's git index is unreadable: content that was only staged is lost")

    def _shared(self) -> list[str]:
        """Return the files that a split index refers to."""
        found = [name for name in os.listdir(self._tools.store) if _SHARED_INDEX.fullmatch(name)]
        return found[:10]

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return self._tools.start(*arguments, GIT_INDEX_FILE=self._path)

    def _lines(self, *arguments: str) -> list[bytes]:
        if not self._readable:
            return []
        done = self._run(*arguments)
        return done.stdout.split(b"\0")[:-1] if done.returncode == 0 else []

    def staged(self, commit: str) -> "dict[bytes, tuple[str, str]]":
        """Return mode and object id of every staged file that differs from a commit."""
        form = ("-z", "--cached", "--raw", "--no-abbrev", "--no-renames", "--diff-filter=AMT")
        lines = self._lines("diff-index", *form, "--ignore-submodules=none", commit)
        found = {}
        for head, path in zip(lines[::2], lines[1::2], strict=False):
            _, mode, _, blob, _ = head.decode().split(" ")
            if mode != _GITLINK:
                found[path] = (mode, blob)
        return self._sound(found)

    def modes(self) -> "dict[bytes, str]":
        """Return the mode of every file in the worker's index."""
        found = {}
        for line in self._lines("ls-files", "-s", "-z"):
            head, _, path = line.partition(b"\t")
            mode = head.partition(b" ")[0].decode()
            if mode != _GITLINK:
                found[path] = mode
        return found

    def unmerged(self) -> "dict[bytes, tuple[str, str]]":
        """Return the sides of a conflict, each in a directory named after its stage number."""
        found = {}
        for line in self._lines("ls-files", "-u", "-z"):
            head, _, path = line.partition(b"\t")
            mode, blob, stage = head.decode().split(" ")
            if mode != _GITLINK:
                found[stage.encode() + b"/" + path] = (mode, blob)
        return self._sound(found)

    def not_checked_out(self) -> "set[bytes]":
        """Return the paths that a sparse checkout leaves out."""
        return {line[2:] for line in self._lines("ls-files", "-t", "-z") if line[:2] == b"S "}

    def _sound(self, found: "dict[bytes, tuple[str, str]]") -> "dict[bytes, tuple[str, str]]":
        """Return the entries whose content exists, is not empty and is not too large."""
        asked = "".join(f"{blob}\n" for _, blob in found.values()).encode()
        form = "--batch-check=%(objecttype) %(objectsize)"
        answers = self._tools.start("cat-file", form, "--buffer", stdin=asked).stdout.splitlines()
        answered = list(zip(found.items(), answers, strict=False))
        sizes = {path: int(a[5:]) for (path, _), a in answered if a.startswith(b"blob ")}
        self.too_large = [path for path, size in sizes.items() if size > LARGEST_BLOB]
        return {path: found[path] for path, size in sizes.items() if 0 < size <= LARGEST_BLOB}


class Others:
    """The commits of a worker's store that its branch does not reach, and its staged content."""

    def __init__(self, tools: Tools, base: str) -> None:
        """Start with no commits."""
        self._tools = tools
        self._base = base
        self._kept: dict[str, str] = {}
        self._parents: dict[str, tuple[str, ...]] = {}
        self._tags: set[str] = set()

    def keep_commit(self, name: str, commit: str, parent: str) -> None:
        """Keep a commit that this harvest created, under a name."""
        self._kept[name] = commit
        self._parents[commit] = (parent,)

    def keep_index(self, index: Index, at: str, made: str) -> None:
        """Keep content that is staged but in no commit.

        Args:
            index: The worker's index.
            at: The commit that was checked out.
            made: The commit of the worktree's files.
        """
        staged = index.staged(at)
        for path in index.too_large[:MOST_REFS]:
            said = f"staged content over {LARGEST_BLOB >> 20} MiB left out"
            self._tools.warn(f"{said}: {os.fsdecode(path)}")
        differing = index.staged(made)
        only = {path: one for path, one in staged.items() if differing.get(path) == one}
        if only:
            said = "architect: staged content that differs from the files"
            self.keep_commit("index", self.commit_entries(only, at, said), at)
        sides = index.unmerged()
        if sides:
            said = "architect: the sides of a conflict: 1 common, 2 ours, 3 theirs"
            self.keep_commit("conflict", self.commit_entries(sides, at, said, alone=True), at)

    def commit_entries(
        self, entries: "Mapping[bytes, tuple[str, str]]", parent: str, message: str,
        *, alone: bool = False,
    ) -> str:  # fmt: skip
        """Commit files, either on top of a commit's tree or in a tree without other files."""
        tools = self._tools
        scratch = os.path.join(tools.env["GIT_DIR"], "scratch-index")

        def run(*arguments: str, stdin: bytes = b"") -> str:
            done = tools.start(*arguments, stdin=stdin, GIT_INDEX_FILE=scratch)
            if done.returncode:
                raise RuntimeError(f"git {arguments[0]}: {done.stderr.decode(errors='replace')}")
            return done.stdout.decode().strip()

        run("read-tree", "--empty") if alone else run("read-tree", parent)
        lines = (f"{one[0]} {one[1]}\t".encode() + path + b"\0" for path, one in entries.items())
        run("update-index", "--add", "-z", "--index-info", stdin=b"".join(lines))
        tree = run("write-tree")
        return run("commit-tree", tree, "-p", parent, stdin=message.encode())

    def keep_commits(self, tip: str, *, without: str | None) -> None:
        """Find and name the store's commits that the worker's branch does not reach.

        Args:
            tip: The last of the worker's own commits on the branch.
            without: A commit whose history was deliberately replaced by one commit.
        """
        self._read_store()
        reached = self._reached([tip, *([without] if without else [])])
        named: dict[str, str] = {}
        left_out = 0
        for name, found, kind in self._known_refs():
            if len(named) == MOST_REFS:
                # Commits are found without their names; the text of a tag is not.
                left_out += kind != "commit"
                continue
            commit = self._commit_of(name, found, kind)
            if commit is not None and commit not in reached:
                named[name] = commit
        if left_out:
            self._tools.warn(f"tags and refs of files beyond {MOST_REFS} were left out: {left_out}")
        rest = self._parents.keys() - reached
        rest -= self._reached([*named.values(), *self._kept.values()])
        heads = rest - {parent for commit in rest for parent in self._parents[commit]}
        labels = {self._tools.resolve(name): name for name in reversed(PART_WAY)}
        for commit in sorted(heads):
            named.setdefault(labels.get(commit) or f"unreachable/{commit[:12]}", commit)
        self._kept = {**self._complete(named), **self._kept}

    def _reached(self, commits: "Iterable[str]") -> "set[str]":
        """Return all commits of the store that some commits reach."""
        reached, pending = set(), list(commits)
        while pending:
            commit = pending.pop()
            if commit not in reached:
                reached.add(commit)
                pending += self._parents.get(commit, ())
        return reached

    def _read_store(self) -> None:
        """Read the parents of every commit that the worker created."""
        mine = {"GIT_OBJECT_DIRECTORY": os.path.join(self._tools.store, "objects")}
        commits: dict[str, int] = {}
        for name, kind, size in self._listed(mine):
            if kind == "tag":
                self._tags.add(name)
            elif size > LARGEST_COMMIT:
                self._tools.warn(f"a commit of {size} bytes was left out: {name}")
            else:
                commits[name] = size
        new = self._unknown(commits)
        if len(new) > MOST_COMMITS:
            self._tools.warn(f"of the worker's {len(new)} commits only {MOST_COMMITS} were read")
        self._parents |= dict(self._parsed(new[:MOST_COMMITS]))

    def has_commits(self, objects: str) -> bool:
        """Return whether an object directory, which was tidied, has commits or tags."""
        return any(True for _ in self._listed({"GIT_OBJECT_DIRECTORY": objects}))

    def _listed(self, place: "dict[str, str]") -> "Iterator[tuple[str, str, int]]":
        """List the commits and tags of one object directory."""
        form = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
        process = subprocess.Popen(
            ["git", "cat-file", "--batch-all-objects", "--unordered", form],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            env={**self._tools.env, **place, **_NO_OTHERS},
        )  # fmt: skip
        with process:
            for number, line in enumerate(process.stdout or ()):
                if number == MOST_OBJECTS:
                    process.kill()
                    self._tools.warn(
                        "the worker's git store is too large: only a part of it was searched"
                    )
                    return
                words = line.decode().split()
                if len(words) == 3 and words[1] in ("commit", "tag"):
                    yield words[0], words[1], int(words[2])

    def _unknown(self, commits: "Iterable[str]") -> "list[str]":
        """Return the commits that the worker was not given."""
        ordered = sorted(commits)
        given = {"GIT_OBJECT_DIRECTORY": self._tools.objects, **_NO_OTHERS}
        asked = "".join(f"{name}\n" for name in ordered).encode()
        done = self._tools.start("cat-file", "--batch-check", "--buffer", stdin=asked, **given)
        answers = done.stdout.splitlines()
        return [n for n, line in zip(ordered, answers, strict=False) if line.endswith(b" missing")]

    def _parsed(self, commits: "list[str]") -> "Iterator[tuple[str, tuple[str, ...]]]":
        asked = "".join(f"{name}\n" for name in commits).encode()
        content = self._tools.start("cat-file", "--batch", "--buffer", stdin=asked).stdout
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

    def _known_refs(self) -> "list[tuple[str, str, str]]":
        """List the refs of the store: name, object id, and the object's type."""
        refs = dict(self._refs())
        if len(refs) > MOST_NAMES:
            self._tools.warn(f"only {MOST_NAMES} of the worker's {len(refs)} refs were read")
        names = sorted(refs, key=_rank)[:MOST_NAMES]
        asked = "".join(f"{refs[name]}\n" for name in names).encode()
        form = ("cat-file", "--batch-check=%(objecttype)", "--buffer")
        kinds = self._tools.start(*form, stdin=asked).stdout.decode().splitlines()
        return [(name, refs[name], kind) for name, kind in zip(names, kinds, strict=False)]

    def _refs(self) -> "Iterator[tuple[str, str]]":
        store = self._tools.store
        for line in self._tools.read(os.path.join(store, "packed-refs"), _PACKED).split("\n"):
            found, _, name = line.partition(" ")
            if name.startswith("refs/") and _OBJECT_ID.fullmatch(found):
                yield _short(name), found
        for name in self._loose():
            if found := self._tools.resolve(name) or "":
                yield _short(name), found
        log = self._tools.read(os.path.join(store, "logs", "refs", "stash"), _LOG)
        entries = (line.split(" ")[1] for line in reversed(log.split("\n")) if line.count(" ") > 1)
        for number, entry in enumerate(entries):
            if _OBJECT_ID.fullmatch(entry):
                yield f"stash/{number}", entry

    def _loose(self) -> "Iterator[str]":
        count = 0
        for folder, _, files in os.walk(os.path.join(self._tools.store, "refs")):
            for name in files:
                count += 1
                if count > 2 * MOST_NAMES:
                    return
                yield os.path.relpath(os.path.join(folder, name), self._tools.store)

    def _commit_of(self, name: str, found: str, kind: str) -> str | None:
        """Return a commit with the object of a ref; None if the worker was given the object."""
        if found in self._parents:
            return found
        if kind == "tag" and found in self._tags:
            return self._of_tag(found)
        if kind.endswith(" missing"):
            self._tools.warn(f"a ref names an object that is missing or unreadable: {name}")
        if kind not in ("tree", "blob") or not self._unknown([found]):
            return None
        return self._wrap(
            self._tree(found, kind), self._base, f"architect: object that `{name}` named"
        )

    def _tree(self, found: str, kind: str) -> str:
        """Return a tree, or a tree that contains a blob under the name `blob`."""
        if kind == "tree":
            return found
        return self._tools.git("mktree", stdin=f"100644 blob {found}\tblob\n".encode())

    def _of_tag(self, tag: str) -> str | None:
        """Create a commit with the text of an annotated tag, on top of the tag's target."""
        git = self._tools.git
        target = git("rev-parse", "--verify", "--quiet", f"{tag}^{{}}", check=False)
        kind = git("cat-file", "-t", target, check=False) if target else ""
        size = git("cat-file", "-s", tag, check=False)
        if kind not in ("commit", "tree", "blob") or not size or int(size) > LARGEST_COMMIT:
            self._tools.warn(f"a tag that is damaged or too large was left out: {tag}")
            return None
        text = self._tools.start("cat-file", "tag", tag).stdout
        if kind == "commit":
            return self._wrap(f"{target}^{{tree}}", target, "architect: a tag\n\n", text)
        return self._wrap(self._tree(target, kind), self._base, "architect: a tag\n\n", text)

    def _wrap(self, tree: str, parent: str, message: str, more: bytes = b"") -> str:
        made = self._tools.git(
            "commit-tree", self._tools.git("rev-parse", tree), "-p", parent,
            stdin=message.encode() + more.replace(b"\0", b""),
        )  # fmt: skip
        self._parents[made] = (parent,)
        return made

    def _complete(self, named: "dict[str, str]") -> "dict[str, str]":
        """Return the complete commits; of an incomplete one, only its last files are kept."""
        if self._is_complete(named.values()):
            return self._few(named)
        whole: dict[str, str] = {}
        pending, checks = [list(named.items())], 0
        while pending:
            group = pending.pop()
            checks += 1
            if checks > MOST_CHECKS:
                self._tools.warn(f"commits with damaged neighbours were left out: {len(group)}")
            elif self._is_complete(commit for _, commit in group):
                whole.update(group)
            elif len(group) > 1:
                half = len(group) // 2
                pending += [group[half:], group[:half]]
            else:
                whole.update(self._mended(*group[0]))
        return self._few(whole)

    def _mended(self, name: str, commit: str) -> "dict[str, str]":
        """Return a commit with the files of a commit with a damaged history, if they exist."""
        if not self._is_complete([f"{commit}^{{tree}}"]):
            self._tools.warn(f"a damaged commit could not be kept: `{name}` ({commit})")
            return {}
        said = f"architect: the files of {commit}, whose history is damaged"
        self._tools.warn(f"only the files of a commit with a damaged history are kept: `{name}`")
        return {name: self._wrap(f"{commit}^{{tree}}", self._base, said)}

    def _is_complete(self, names: "Iterable[str]") -> bool:
        asked = "".join(f"{name}\n" for name in (*names, f"^{self._base}")).encode()
        form = ("rev-list", "--objects", "--quiet", "--stdin")
        return self._tools.start(*form, stdin=asked).returncode == 0

    def _few(self, named: "dict[str, str]") -> "dict[str, str]":
        """Return a limited number of refs; one additional commit reaches all others."""
        if len(named) <= MOST_REFS:
            return named
        names = list(named)
        few, many = names[: MOST_REFS - 1], names[MOST_REFS - 1 :]
        if len(many) > MOST_PARENTS:
            left = len(many) - MOST_PARENTS
            self._tools.warn(f"{left} of the worker's commits without a ref were left out")
        tree = self._tools.git("rev-parse", f"{self._base}^{{tree}}")
        parents = [word for name in many[:MOST_PARENTS] for word in ("-p", named[name])]
        said = b"architect: further commits of the worker, each a parent of this one"
        rest = self._tools.git("commit-tree", tree, *parents, stdin=said)
        return {**{name: named[name] for name in few}, "rest": rest}

    def write(self) -> None:
        """Write `kept`, the names and their commits, and `kept.pack`, their objects.

        One commit with all of them as parents represents them: the host checks this commit.
        """
        if not self._kept:
            return
        tree = self._tools.git("rev-parse", f"{self._base}^{{tree}}")
        parents = [word for commit in self._kept.values() for word in ("-p", commit)]
        said = b"architect: all that is kept of a worker beside its branch"
        bundle = self._tools.git("commit-tree", tree, "-p", self._base, *parents, stdin=said)
        self.pack(bundle, "kept.pack")
        with open(os.path.join(self._tools.out, "kept"), "w", encoding="ascii") as file:
            json.dump({"bundle": bundle, "refs": list(self._kept.items())}, file)

    def pack(self, tip: str, name: str) -> None:
        """Write a thin pack of the objects that a commit reaches and the base does not."""
        with open(os.path.join(self._tools.out, name), "wb") as file:
            subprocess.run(
                ["git", *_PACK],
                input=f"{tip}\n^{self._base}\n".encode(), stdout=file, env=self._tools.env,
                check=True,
            )  # fmt: skip


def carry_over(
    tools: Tools, others: Others, places: "tuple[str, str, str]", message: str
) -> str | None:
    """Apply uncommitted changes to another commit, like `git checkout` does.

    Args:
        tools: Runs git.
        others: Creates commits.
        places: The checked-out commit, the commit of its files with changes, and the other commit.
        message: Message of the new commit.

    Returns:
        The new commit; None if both changed the same file.
    """
    at, made, tip = places
    changed, meanwhile = _changed(tools, at, made), _changed(tools, at, tip)
    both = changed.keys() & meanwhile.keys()
    if any(changed[path] != meanwhile[path] for path in both):
        return None
    entries = {path: entry for path, entry in changed.items() if path not in both}
    if not entries:
        return tip
    try:
        return others.commit_entries(entries, tip, message)
    except RuntimeError:
        return None


def _changed(tools: Tools, one: str, other: str) -> "dict[bytes, tuple[str, str]]":
    form = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=none")
    fields = tools.start("diff-tree", *form, one, other).stdout.split(b"\0")[:-1]
    words = (head.decode().split(" ") for head in fields[::2])
    return {path: (w[1], w[3]) for path, w in zip(fields[1::2], words, strict=True)}


def _short(name: str) -> str:
    name = name.removeprefix("refs/")
    return "stash/0" if name == "stash" else name


def _rank(name: str) -> "tuple[int, str]":
    kind = name.partition("/")[0]
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), name)


def _copy(source: str, target: str) -> bool:
    """Copy a regular file of limited size, following no link."""
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if info.st_size > LARGEST_INDEX or not stat.S_ISREG(info.st_mode):
            return False
        with open(target, "wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
    return True
