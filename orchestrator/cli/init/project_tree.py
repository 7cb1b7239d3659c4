"""Read a project's files (tracked, or untracked but not ignored) as untrusted input."""

import json
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.config.document import read_document, read_text
from orchestrator.config.node import DocumentError, Node
from orchestrator.git.repository import Repository

_LIST_LIMIT = 64 * 1024**2
_DEEPEST = 4
"""Maximum number of components in a path; deeper files are ignored."""
_FOREIGN_DIRECTORIES = frozenset(
    {"node_modules", "vendor", "third_party", "site-packages", "testdata", "fixtures", "examples"}
)


class Tree:
    """The files of a project that are part of its worktrees."""

    def __init__(
        self, top: Path, files: Iterable[str], ignores: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Store the names of files, relative to `top`, and a function that checks `.gitignore`."""
        self.ignores = ignores
        self._top = top
        self._files = frozenset(name for name in files if _is_project_file(name))
        self.problems: list[str] = []

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

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def find(self, *names: str) -> list[str]:
        """Return the files with one of these names in any directory, closest to the top first."""
        wanted = set(names)
        files = [file for file in self._files if PurePosixPath(file).name in wanted]
        return sorted(files, key=lambda file: (file.count("/"), file))

    def under(self, directory: str) -> list[str]:
        """Return the files at any depth below a directory; `.` is the repository's top."""
        return sorted(
            file for file in self._files if directory == "." or file.startswith(f"{directory}/")
        )

    def path(self, name: str) -> Path:
        """Return the place of a file on this machine."""
        return self._top / name

    def text(self, name: str) -> str:
        """Return a file's text; empty if the file does not exist or cannot be read."""
        path = self._top / name
        if name not in self._files or path.is_symlink() or not path.is_file():
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
            root = read_document(self._top / name, aliases=True)
        except DocumentError as error:
            self._record_problem(name, str(error))
            return {}
        return root.value if isinstance(root.value, dict) else {}

    def _record_problem(self, name: str, problem: str) -> None:
        self.problems.append(f"{name}: {problem.removeprefix(f'{self._top / name}').lstrip(': ')}")


def _is_project_file(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return len(parts) <= _DEEPEST and not _FOREIGN_DIRECTORIES.intersection(parts[:-1])


def parent(name: str) -> str:
    """Return the directory that contains a file; `.` is the repository's top."""
    return str(PurePosixPath(name).parent)


def join(directory: str, name: str) -> str:
    """Return the path of a file in a directory."""
    return name if directory == "." else f"{directory}/{name}"
