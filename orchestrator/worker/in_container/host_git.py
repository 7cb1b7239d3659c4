"""Run git in a container on a git directory that the host created, and collect messages.

The messages tell the user about work that was left out or changed. The host sets the environment
variables in `orchestrator.worker.steps.pack`.
"""

import errno
import json
import os
import subprocess
from collections.abc import Mapping
from io import BufferedWriter
from typing import NamedTuple

_NO_VARIABLES: Mapping[str, str] = {}
_FULL = (b"No space left on device", b"Out of diskspace")
"""Ends of the error lines with which git reports a full disk."""


class DiskFullError(Exception):
    """The disk is full. The harvest ends, and can be repeated when there is space again.

    No handler of a git command that failed for another reason may catch it: a harvest that
    continues without the files or commits for which there was no room would lose them.
    """


class Places(NamedTuple):
    """Paths of the directories in the container that packs a worker's files."""

    workspace: str
    """The worktree with the worker's files."""
    store: str
    """The worker's own git directory."""
    git_dir: str
    """The git directory that the host created, so that the worker's configuration is not used."""
    objects: str
    """The git objects that the worker was given."""
    out: str
    """The directory for the packed commits and notes."""


class HostGit:
    """Runs git with the host's configuration, the worker's files and the worker's objects."""

    def __init__(self, places: Places) -> None:
        self.places = places
        # protection: environment-of-harvest
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": "/nonexistent",
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_DIR": places.git_dir,
            "GIT_WORK_TREE": places.workspace,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{places.objects}:{places.store}/objects",
        }

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        env: Mapping[str, str] = _NO_VARIABLES,
        stdout: int | BufferedWriter = subprocess.PIPE,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git with additional variables and return the completed process.

        Raises:
            DiskFullError: Git failed because the disk is full.
        """
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", "-c", "index.skipHash=true", *arguments],
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**self.env, **env},
            cwd=env.get("GIT_WORK_TREE", self.places.workspace),
            check=False,
        )
        if done.returncode and any(line.endswith(_FULL) for line in done.stderr.splitlines()):
            # protection: full-disk-ends-harvest
            raise DiskFullError(os.strerror(errno.ENOSPC))
        return done

    def text(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] = _NO_VARIABLES
    ) -> str:
        """Run git with additional variables and return its stdout as text.

        Raises:
            RuntimeError: Git failed.
        """
        done = self.run(*arguments, stdin=stdin, env=env)
        _check(done, arguments[0])
        return done.stdout.decode(errors="replace").strip()

    def text_or_empty(self, *arguments: str) -> str:
        """Run git and return its stdout as text; empty if the command failed."""
        done = self.run(*arguments)
        return "" if done.returncode else done.stdout.decode(errors="replace").strip()

    def paths(self, *arguments: str) -> list[bytes]:
        """Run git and return the parts of its stdout that end with a NUL byte."""
        return self.run(*arguments).stdout.split(b"\0")[:-1]

    def list_added(self, *command: str) -> list[str]:
        """Run a git diff command such as `diff-tree`, and return the paths of the added files.

        Raises:
            RuntimeError: Git failed.
        """
        form = ("-z", "--name-only", "--no-renames", "--diff-filter=A")
        done = self.run(command[0], *form, *command[1:])
        _check(done, command[0])
        return [os.fsdecode(path) for path in done.stdout.split(b"\0") if path]

    def write_output(
        self,
        name: str,
        *arguments: str,
        stdin: bytes = b"",
        env: Mapping[str, str] = _NO_VARIABLES,
    ) -> str:
        """Run git with its stdout in a file of the output directory; return the file's path.

        Raises:
            RuntimeError: Git failed.
        """
        path = os.path.join(self.places.out, name)
        with open(path, "wb") as file:
            _check(self.run(*arguments, stdin=stdin, env=env, stdout=file), arguments[0])
        return path

    def read_given(self, name: str) -> dict[str, list[int | str]]:
        """Read a JSON file that the host put into the git directory; empty if it is missing."""
        try:
            with open(os.path.join(self.places.git_dir, name), encoding="ascii") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {}


def _check(done: subprocess.CompletedProcess[bytes], command: str) -> None:
    """Raise an error with the last line of git's error output if git failed.

    Raises:
        RuntimeError: Git failed.
    """
    if done.returncode:
        raise RuntimeError(f"git {command}: {last_line(done.stderr.decode(errors='replace'))}")


def write_pack(git: HostGit, name: str, *, tip: str, base: str) -> None:
    """Write a pack with the objects that a commit reaches and the base does not.

    Raises:
        RuntimeError: Git failed.
    """
    form = ("--revs", "--stdout", "--thin", "-q", "--delta-base-offset")
    git.write_output(name, "pack-objects", *form, stdin=f"{tip}\n^{base}\n".encode())


MOST_NOTES = 20
LONGEST_NOTE = 200
"""Maximum number of characters of a note; a character takes up to 12 bytes, and the host reads at
most 64 KiB.
"""


class Notes:
    """The messages of one harvest; warnings about lost work come first."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        """Add a warning about work that could not be kept."""
        self.texts.insert(0, text)

    def add(self, text: str) -> None:
        """Add a message that is not a warning."""
        self.texts.append(text)

    def add_path(self, what: str, path: str) -> None:
        """Add the note `what`, followed by the path of a file or directory of the worktree."""
        path = os.path.relpath(os.path.join(self._workspace, path), self._workspace)
        self.texts.append(f"{what}: {path}")


def few_notes(notes: list[str]) -> list[str]:
    """Shorten a list of notes to the first ones of each kind, with the number of the others."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        text = note if len(note) <= LONGEST_NOTE else f"{note[:120]}...{note[-70:]}"
        kinds.setdefault(note.partition(": ")[0], []).append(text)
    most = len(notes) if len(notes) <= MOST_NOTES else max(1, MOST_NOTES // len(kinds) - 1)
    few: list[str] = []
    for kind, found in kinds.items():
        few += found[:most]
        few += [f"{kind[:LONGEST_NOTE]}: {len(found) - most} more"] if len(found) > most else []
    rest = [f"{len(few) - MOST_NOTES + 1} more notes"] if len(few) > MOST_NOTES else []
    return [*few[: MOST_NOTES - len(rest)], *rest]


def last_line(text: str) -> str:
    """Return the last line of git's error output."""
    return text.strip().rpartition("\n")[2]


ROOM = "ORCHESTRATOR_HARVEST_ROOM"
"""Name of the variable with the number of bytes that packing may write in addition to the worker's
files.
"""
RESERVED = "ORCHESTRATOR_HARVEST_RESERVED"
"""Name of the variable with the reserved names of worktrees, separated by `/`."""


def room() -> int:
    """Return the number of bytes that packing may write in addition to the worker's files."""
    return int(os.environ.get(ROOM, 1 << 32))


def worktree_names() -> list[str]:
    """Return the reserved names; `*` at the end of a name stands for all names with that prefix."""
    return os.environ.get(RESERVED, ".architect-parallel-*").split("/")
