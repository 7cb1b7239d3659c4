"""Read a project's files (tracked, or untracked but not ignored) as untrusted input."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.config.loading.document import read_document, read_text
from orchestrator.config.node import DocumentError, Node
from orchestrator.repository.repository import Repository

_LIST_LIMIT = 64 * 1024**2
_DEEPEST = 4
"""Maximum number of components in a path; deeper files are ignored."""
_FOREIGN_DIRECTORIES = frozenset(
    {"node_modules", "vendor", "third_party", "site-packages", "testdata", "fixtures", "examples"}
)


class Tree:
    """The files of a project that are part of its worktrees, or those below one directory."""

    def __init__(
        self, top: Path, files: Iterable[str], ignores: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Store the names of files, relative to `top`, and a function that checks `.gitignore`."""
        self.ignores = ignores
        self.problems: list[str] = []
        self._root = self._top = top
        self._files = frozenset(
            name
            for name, path in ((name, PurePosixPath(name)) for name in files)
            if len(path.parts) <= _DEEPEST
            and not _FOREIGN_DIRECTORIES.intersection(path.parts[:-1])
        )

    @classmethod
    def of(cls, repository: Repository) -> "Tree":
        """Return the files of a repository, including those not yet committed.

        Raises:
            RepositoryError: Git failed, or there are too many files.
        """
        listed = repository.git.listing(
            "ls-files", "-z", "--cached", "--others", "--exclude-standard", limit=_LIST_LIMIT
        )

        def ignores(directory: str) -> bool:
            return repository.git.succeeds("check-ignore", "--quiet", "--", f"{directory}/")

        names = (name.decode("utf-8", "replace") for name in listed.split(b"\0") if name)
        return cls(repository.top, names, ignores)

    def at(self, directory: str) -> "Tree":
        """Return the files below a directory, with names relative to it."""
        tree = Tree(self._top / directory, (), self.ignores)
        tree._root, tree.problems = self._root, self.problems
        below = "" if directory == "." else f"{directory}/"
        tree._files = frozenset(
            name.removeprefix(below) for name in self._files if name.startswith(below)
        )
        return tree

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def first(self, *names: str, having: re.Pattern[str] | None = None) -> str | None:
        """Return the first of these files that exists, or whose text has a match."""
        return next(
            (
                name
                for name in names
                if name in self and (having is None or having.search(self.text(name)))
            ),
            None,
        )

    def find(self, *names: str) -> list[str]:
        """Return the files with one of these names in any directory, closest to the top first."""
        files = [file for file in self._files if PurePosixPath(file).name in names]
        return sorted(files, key=lambda file: (file.count("/"), file))

    def under(self, directory: str = ".") -> list[str]:
        """Return the files at any depth below a directory."""
        below = "" if directory == "." else f"{directory}/"
        return sorted(file for file in self._files if file.startswith(below))

    def path(self, name: str) -> Path:
        """Return the place of a file on this machine."""
        return self._top / name

    def text(self, name: str) -> str:
        """Return a file's text; empty if the file does not exist or cannot be read."""
        path = self.path(name)
        if name not in self or path.is_symlink() or not path.is_file():
            return ""
        try:
            return read_text(path)
        except DocumentError as error:
            self._record_problem(name, str(error))
            return ""

    def toml(self, name: str) -> dict[str, Any]:
        """Return a TOML file's content; empty if the file is missing or malformed."""
        try:
            return tomllib.loads(self.text(name))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            self._record_problem(name, f"is not TOML: {error}")
            return {}

    def json(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file; empty if the file is missing or malformed."""
        try:
            content = json.loads(self.text(name) or "{}")
        except (ValueError, RecursionError) as error:
            self._record_problem(name, f"is not JSON: {error}")
            return {}
        return content if isinstance(content, dict) else {}

    def document(self, name: str) -> dict[str, Node]:
        """Return the mapping in a YAML file; empty if the file is missing or malformed."""
        if not self.text(name):
            return {}
        try:
            root = read_document(self.path(name), aliases=True)
        except DocumentError as error:
            self._record_problem(name, str(error))
            return {}
        return root.value if isinstance(root.value, dict) else {}

    def _record_problem(self, name: str, problem: str) -> None:
        path = self.path(name)
        cause = problem.removeprefix(str(path)).lstrip(": ")
        self.problems.append(f"{path.relative_to(self._root)}: {cause}")


def parent(name: str) -> str:
    """Return the directory that contains a file; `.` is the repository's top."""
    return str(PurePosixPath(name).parent)


def join(directory: str, name: str) -> str:
    """Return the path of a file in a directory."""
    return name if directory == "." else f"{directory}/{name}"
