"""Random repositories with three branches, for comparison with `git merge`."""

import os
import random
import subprocess
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

from tests.support.repository import git

Entry = tuple[str, bytes]
"""Mode and content; of a submodule, the id of its commit."""
Files = dict[bytes, Entry]
NAMES = (
    b"a.txt", b"src/app.py", b"src/util.py", b"src/deep/x.c", b"docs/read me.md", b"lib/one",
    b"lib/two", b"bin/run", b"\xc3\xa4\xc3\xb6.txt", b"tab\tname", b'quo"te', b"line\nbreak",
    b"-option", b"12", b"not-utf8-\xff", b":(top)x", b"data.bin",
)  # fmt: skip


def text(chance: random.Random, lines: int = 24) -> bytes:
    """Return a text whose lines differ, so that renames are detected."""
    return b"".join(b"%d %d\n" % (n, chance.randrange(10**6)) for n in range(lines))


class Trio:
    """A base and three branches, each with random changes."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self._chance = random.Random(seed)
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        git(root, "config", "user.name", "user")
        git(root, "config", "user.email", "user@example.org")
        git(root, "config", "core.autocrlf", "false")
        base = self._base()
        self.base = self._commit(base, [])
        self.tips = [self._commit(self._changed(base), [self.base]) for _ in range(3)]
        git(root, "reset", "-q", "--hard", self.base)

    def pairs(self) -> list[tuple[str, str]]:
        return [*combinations(self.tips, 2)]

    def _base(self) -> Files:
        chance = self._chance
        names = chance.sample(NAMES, 11)
        found: Files = {name: ("100644", text(chance)) for name in names}
        found[b"data.bin"] = ("100644", chance.randbytes(200) + b"\0")
        found[b"link"] = ("120000", b"a.txt")
        found[b"module"] = ("160000", b"1" * 40)
        return found

    def _changed(self, base: Files) -> Files:
        files = dict(base)
        changes = [
            self._edit, self._edit, self._rename, self._move_directory, self._delete, self._mode,
            self._to_directory, self._to_file, self._line_ends, self._binary, self._link,
            self._add, self._module,
        ]  # fmt: skip
        for change in self._chance.choices(changes, k=self._chance.randint(1, 5)):
            change(files)
        return files

    def _some(self, files: Files, fits: Callable[[Entry], bool] = lambda _: True) -> bytes | None:
        regular = [n for n, entry in sorted(files.items()) if entry[0][:3] == "100" and fits(entry)]
        return self._chance.choice(regular) if regular else None

    def _edit(self, files: Files) -> None:
        name = self._some(files, lambda entry: b"\0" not in entry[1])
        if name is not None:
            lines = files[name][1].splitlines(keepends=True)
            if lines:
                lines[self._chance.randrange(len(lines))] = b"edit %d\n" % self._chance.randrange(9)
            files[name] = (files[name][0], b"".join(lines))

    def _rename(self, files: Files) -> None:
        name = self._some(files)
        if name is not None:
            target = b"renamed-%d" % self._chance.randrange(3)
            self._put(files, target, files.pop(name))

    def _move_directory(self, files: Files) -> None:
        place = self._chance.choice([b"src/", b"lib/"])
        for name in [name for name in files if name.startswith(place)]:
            self._put(files, b"moved/" + name.removeprefix(place), files.pop(name))

    def _delete(self, files: Files) -> None:
        name = self._some(files)
        if name is not None:
            del files[name]

    def _mode(self, files: Files) -> None:
        name = self._some(files)
        if name is not None:
            files[name] = ("100755", files[name][1])

    def _to_directory(self, files: Files) -> None:
        name = self._some(files)
        if name is not None:
            self._put(files, name + b"/inner", files.pop(name))

    def _to_file(self, files: Files) -> None:
        self._put(files, self._chance.choice([b"src", b"lib"]), ("100644", text(self._chance)))

    def _line_ends(self, files: Files) -> None:
        name = self._some(files, lambda entry: b"\0" not in entry[1])
        if name is not None:
            files[name] = (files[name][0], files[name][1].replace(b"\n", b"\r\n"))

    def _binary(self, files: Files) -> None:
        self._put(files, b"data.bin", ("100644", self._chance.randbytes(200) + b"\0"))

    def _link(self, files: Files) -> None:
        target = b"target-%d" % self._chance.randrange(2)
        self._put(files, self._chance.choice([b"link", b"a.txt"]), ("120000", target))

    def _add(self, files: Files) -> None:
        self._put(files, b"new-%d" % self._chance.randrange(2), ("100644", text(self._chance)))

    def _module(self, files: Files) -> None:
        self._put(files, b"module", ("160000", b"%d" % self._chance.randint(2, 3) * 40))

    def _put(self, files: Files, name: bytes, entry: Entry) -> None:
        """Add a file, and remove what is in its way."""
        for other in [*files]:
            if other.startswith(name + b"/") or name.startswith(other + b"/"):
                del files[other]
        files[name] = entry

    def _commit(self, files: Files, parents: list[str]) -> str:
        blobs = {
            name: data.decode() if mode == "160000" else self._git("hash-object", data)
            for name, (mode, data) in files.items()
        }
        lines = (b"%s %s\t%s\0" % (files[name][0].encode(), blobs[name].encode(), name)
                 for name in sorted(files))  # fmt: skip
        self._git("read-tree", b"")
        self._git("update-index", b"".join(lines))
        tree = self._git("write-tree", b"")
        words = [word for parent in parents for word in ("-p", parent)]
        return git(self.root, "commit-tree", tree, *words, "-m", "changes")

    def _git(self, command: str, given: bytes) -> str:
        options = {
            "hash-object": ["-w", "--stdin"],
            "read-tree": ["--empty"],
            "update-index": ["-z", "--add", "--index-info"],
            "write-tree": ["--missing-ok"],
        }
        done = subprocess.run(
            ["git", command, *options[command]], cwd=self.root, input=given,
            capture_output=True, check=True,
        )  # fmt: skip
        return done.stdout.decode().strip()


def merged_by_git(repo: Path, ours: str, theirs: str) -> tuple[str | None, frozenset[bytes]]:
    """Run `git merge` in a checkout; return the merged tree if it is clean, and unmerged paths."""
    git(repo, "checkout", "-q", "-f", "--detach", ours)
    subprocess.run(["git", "clean", "-qfdx"], cwd=repo, check=True)
    done = subprocess.run(
        ["git", "merge", "-q", "--no-ff", "--no-commit", theirs], cwd=repo, capture_output=True,
        check=False, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    unmerged = subprocess.run(
        ["git", "ls-files", "-u", "-z"], cwd=repo, capture_output=True, check=True
    ).stdout.split(b"\0")
    paths = frozenset(line.partition(b"\t")[2] for line in unmerged if line)
    tree = None if done.returncode else git(repo, "write-tree", "--missing-ok")
    git(repo, "reset", "-q", "--hard", ours)
    return tree, paths
