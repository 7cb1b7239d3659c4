"""Write a worker's ports and service addresses into an untracked file such as `.env`.

Existing lines, from a copied file of the user or from the setup commands, stay above the
orchestrator's lines.
"""

import errno
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.git.repository import Repository
from orchestrator.worker.context import WorkerContext
from orchestrator.workspace.mounts import Workspace

_BEGIN = "# Ports and services of this worker alone, by orchestrator; never committed."
_END = "# Until here."
_OURS = re.compile(f"^{re.escape(_BEGIN)}\n.*?^{re.escape(_END)}\n", re.DOTALL | re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+=,-]*")
_MOST = 1024**2
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MODE = 0o644
_IN_THE_WAY = frozenset({errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENOTDIR})


def check_dotenv(repository: Repository, base: str, path: str | None) -> None:
    """Reject a `dotenv` file that git tracks: the variables added to it would be committed.

    Raises:
        ConfigError: The base commit contains the file.
    """
    if path is not None and repository.git.run("ls-tree", "--full-tree", base, "--", path):
        raise ConfigError(
            f"the `dotenv` file `{path}` is tracked by git, so its lines would be committed",
            key="dotenv.tracked",
            hint="use an untracked file, such as `.env.local`",
        )


def write_dotenv(
    worker: WorkerContext, workspace: Workspace, of_services: Mapping[str, str]
) -> None:
    """Write or update a worker's `dotenv` file before a container with the worktree starts.

    Args:
        worker: The worker.
        workspace: Its files.
        of_services: Variables with the addresses of the worker's services.

    Raises:
        OrchestratorError: A directory or link has the path of the `dotenv` file.
        OSError: The disk is full.
    """
    path = worker.config.project.dotenv
    if path is None:
        return
    variables = {**worker.ports.variables(), **of_services}
    variables |= {n: v for n, v in worker.config.isolation.env.items() if n in variables}
    file = _File(workspace, path)
    try:
        before = _OURS.sub("", file.read())
        end = "\n" if before and not before.endswith("\n") else ""
        lines = "".join(f"{name}={_quote(value)}\n" for name, value in variables.items())
        text = f"{before}{end}{_BEGIN}\n{lines}{_END}\n"
        file.replace(text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        if error.errno not in _IN_THE_WAY:
            raise
        raise OrchestratorError(
            f"the `dotenv` file `{path}` cannot be written: a directory or a link is in its place, "
            "or its path leads through a file or a link",
            key="dotenv.blocked",
        ) from error


def _quote(value: str) -> str:
    """Quote a value so that shells and libraries for `.env` files read the same text."""
    if _PLAIN.fullmatch(value):
        return value
    if "'" not in value:
        return f"'{value}'"
    return '"' + re.sub(r'([\\"$`])', r"\\\1", value) + '"'


class _File:
    """A file in a worker's tree. No link is followed, because the worker may have created it."""

    def __init__(self, workspace: Workspace, path: str) -> None:
        self._written = workspace.tree
        trees = (self._written, workspace.worktree.path)
        self._trees = trees if workspace.mode == "overlay" else trees[:1]
        *self._folders, self._name = path.split("/")
        self._owner = workspace.user

    def read(self) -> str:
        """Return the text that the worker sees in the file; empty if there is no regular file."""
        for tree in self._trees:
            with suppress(FileNotFoundError):
                return self._read(tree)
        return ""

    def _read(self, tree: Path) -> str:
        folder = self._open(tree, make=False)
        try:
            if not stat.S_ISREG(os.stat(self._name, dir_fd=folder, follow_symlinks=False).st_mode):
                return ""
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(self._name, flags, dir_fd=folder), "rb") as file:  # noqa: PTH123
                return file.read(_MOST).decode("utf-8", "surrogateescape")
        finally:
            os.close(folder)

    def replace(self, content: bytes) -> None:
        """Replace the file by a new file that belongs to the worker."""
        folder = self._open(self._written, make=True)
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=folder)
            made = os.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE, dir_fd=folder)
            with open(made, "wb") as file:  # noqa: PTH123
                file.write(content)
                os.fchmod(file.fileno(), _MODE)
                self._give_away(file.fileno())
        finally:
            os.close(folder)

    def _open(self, tree: Path, *, make: bool) -> int:
        """Open the directory that contains the file, and return its descriptor."""
        descriptor = os.open(tree, _FOLDER)
        for part in self._folders:
            try:
                made = make and self._make(part, descriptor)
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
            if made:
                self._give_away(inner)
        return descriptor

    def _make(self, part: str, folder: int) -> bool:
        try:
            os.mkdir(part, 0o755, dir_fd=folder)
        except FileExistsError:
            return False
        return True

    def _give_away(self, descriptor: int) -> None:
        if self._owner[0] != os.getuid():
            os.fchown(descriptor, *self._owner)
