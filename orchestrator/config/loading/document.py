"""Parse configuration files (YAML and JSON) into plain data with line numbers."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from orchestrator.base.files.safe_open import read_limited
from orchestrator.config.node import MAX_DEPTH, SPELLED, DocumentError, Node

MAX_BYTES = 256 * 1024


def read_document(path: Path, *, below: Path | None = None, aliases: bool = False) -> Node:
    """Read and parse a file: JSON if its name ends in `.json`, YAML otherwise.

    Args:
        path: The file.
        below: A directory with untrusted content, such as the top of a repository. Symbolic
            links below it are refused, because error messages quote the content of the file.
        aliases: Whether aliases and merge keys of YAML are expanded, as in compose files.

    Raises:
        DocumentError: The file cannot be read, is too large, or is malformed.
    """
    if below is not None:
        _refuse_links(path, below)
    text = read_text(path)
    name = str(path)
    if path.suffix == ".json":
        try:
            json.loads(text, object_pairs_hook=_unique)
            return _JsonLines(text).read()
        except json.JSONDecodeError as error:
            raise DocumentError(
                f"{name}:{error.lineno}: the file is not JSON: {error.msg}"
            ) from error
        except (ValueError, RecursionError) as error:
            is_deep = isinstance(error, RecursionError)
            problem = f"the value is nested deeper than {MAX_DEPTH} levels" if is_deep else error
            raise DocumentError(f"{name}: {problem}") from error
    # Imported here because PyYAML is large, and most runs have no YAML file.
    from orchestrator.config.loading.yaml_document import read_yaml

    return read_yaml(text, name, aliases=aliases)


def _refuse_links(path: Path, below: Path) -> None:
    folders = path.relative_to(below).parents
    # protection: linked-configuration-directory-refused
    links = [part for part in (path, *(below / folder for folder in folders)) if part.is_symlink()]
    # `below` itself may be a link: the user chose that directory.
    if any(link != below for link in links):
        raise DocumentError(
            f"{path}: the file, or a directory of its path, is a symbolic link; "
            "only `--config` follows links"
        )
    if not path.is_file():
        raise DocumentError(f"{path}: the path does not name a file")


def read_text(path: Path) -> str:
    """Read a UTF-8 file of at most `MAX_BYTES` bytes.

    Raises:
        DocumentError: The file cannot be read, is too large or is not UTF-8.
    """
    try:
        pipe = path.is_fifo() and path.stat().st_ino
        # protection: settings-are-not-read-from-fifo
        data = _read_pipe(path, pipe) if pipe else read_limited(path, most=MAX_BYTES, follow=True)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise DocumentError(f"{path}: the file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path}: the file is not UTF-8 at byte {error.start}") from error


@cache
def _read_pipe(path: Path, inode: int) -> bytes:  # noqa: ARG001
    """Read a pipe; it can be read only once, but a command may need its content again."""
    return read_limited(path, most=MAX_BYTES, follow=True)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key `{key}` is defined twice")
        members[key] = value
    return members


_BETWEEN = re.compile(r"[\s,:]*")
_JSON = json.JSONDecoder()


class _JsonLines:
    """Parses well-formed JSON and records each value's line, which Python's `json` does not."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._at = 0

    def read(self, depth: int = 0) -> Node:
        if depth > MAX_DEPTH:
            raise RecursionError
        line = bisect_left(self._ends, self._next()) + 1
        match self._text[self._at]:
            case "{":
                members: dict[str, Node] = {}
                for at in self._until("}"):
                    key = str(self._scalar())
                    members[key] = replace(self.read(depth + 1), line=at)
                return Node(members, line)
            case "[":
                return Node([self.read(depth + 1) for _ in self._until("]")], line)
            case _:
                begin = self._at
                value = self._scalar()
                is_spelled = isinstance(value, SPELLED)
                return Node(value, line, self._text[begin : self._at] if is_spelled else None)

    def _until(self, end: str) -> Iterator[int]:
        """Yield the line of each member or item that the caller parses, then skip bracket `end`."""
        self._at += 1
        while self._text[self._next()] != end:
            yield bisect_left(self._ends, self._at) + 1
        self._at += 1

    def _scalar(self) -> object:
        value, self._at = _JSON.raw_decode(self._text, self._next())
        return value

    def _next(self) -> int:
        match = _BETWEEN.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at
