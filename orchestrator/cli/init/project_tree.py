"""A project's files: those that git tracks or would, read as what a stranger wrote."""

import json
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.config.document import DocumentError, Node, read_document, read_text
from orchestrator.git.repository import Repository

_LIST_LIMIT = 64 * 1024**2
_DEEPEST = 4
"""Parts of a path; what lies deeper is no package of its own."""
_NOT_OURS = frozenset(
    {"node_modules", "vendor", "third_party", "site-packages", "testdata", "fixtures", "examples"}
)


class Tree:
    """The files of a project that a worktree has too."""

    def __init__(
        self, top: Path, files: Iterable[str], ignores: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Take the names as git lists them, relative to `top`, and what git would ignore."""
        self.ignores = ignores
        self._top = top
        self._files = frozenset(name for name in files if _is_ours(name))
        self.problems: list[str] = []

    @classmethod
    def of(cls, repository: Repository) -> "Tree":
        """List the files of a repository, the ones not yet committed included.

        Raises:
            RepositoryError: Git refused, or there are far too many.
        """
        listed = repository.git.listing(
            "ls-files", "-z", "--cached", "--others", "--exclude-standard", limit=_LIST_LIMIT
        )

        def ignores(directory: str) -> bool:
            return repository.git.succeeds("check-ignore", "--quiet", "--", f"{directory}/")

        names = (name.decode("utf-8", "replace") for name in listed.split(b"\0") if name)
        return cls(repository.top, names, ignores)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def named(self, *names: str) -> list[str]:
        """List the files of these names in any directory, those near the top first."""
        wanted = set(names)
        found = [file for file in self._files if PurePosixPath(file).name in wanted]
        return sorted(found, key=lambda file: (file.count("/"), file))

    def under(self, directory: str) -> list[str]:
        """List the files below a directory; `.` is the top."""
        return sorted(
            file for file in self._files if directory == "." or file.startswith(f"{directory}/")
        )

    def text(self, name: str) -> str:
        """Read a file; one that is not there, or is no use, has no text."""
        path = self._top / name
        if name not in self._files or path.is_symlink() or not path.is_file():
            return ""
        try:
            return read_text(path)
        except DocumentError as error:
            self._complain(name, str(error))
            return ""

    def toml(self, name: str) -> dict[str, Any]:
        """Read a TOML file; one that is not well formed is empty."""
        try:
            return tomllib.loads(self.text(name))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            self._complain(name, f"is not TOML: {error}")
            return {}

    def json(self, name: str) -> dict[str, Any]:
        """Read a JSON object; one that is not well formed is empty."""
        try:
            found = json.loads(self.text(name) or "{}")
        except (ValueError, RecursionError) as error:
            self._complain(name, f"is not JSON: {error}")
            return {}
        return found if isinstance(found, dict) else {}

    def document(self, name: str) -> dict[str, Node]:
        """Read a YAML mapping; one that is not well formed is empty."""
        if not self.text(name):
            return {}
        try:
            found = read_document(self._top / name)
        except DocumentError as error:
            self._complain(name, str(error))
            return {}
        return found.value if isinstance(found.value, dict) else {}

    def _complain(self, name: str, problem: str) -> None:
        self.problems.append(f"{name}: {problem.removeprefix(f'{self._top / name}').lstrip(': ')}")


def _is_ours(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return len(parts) <= _DEEPEST and not _NOT_OURS.intersection(parts[:-1])


def parent(name: str) -> str:
    """Return the directory of a file; `.` is the top."""
    return str(PurePosixPath(name).parent)


def join(directory: str, name: str) -> str:
    """Return the name of a file in a directory."""
    return name if directory == "." else f"{directory}/{name}"
