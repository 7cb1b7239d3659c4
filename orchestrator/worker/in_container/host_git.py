"""Run git in a container on a git directory that the host created, not on the worker's own."""

import errno
import json
import os
import subprocess
from collections.abc import Mapping
from io import BufferedWriter
from typing import NamedTuple

from orchestrator.worker.in_container.notes import last_line

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

    def added_paths(self, *command: str) -> list[str]:
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

    def given(self, name: str) -> dict[str, list[int | str]]:
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
