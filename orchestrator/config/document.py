"""Parse configuration files (YAML and JSON) into plain data with line numbers."""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from orchestrator.files.safe_open import read_limited

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20


class DocumentError(Exception):
    """A file cannot be read or parsed. The message starts with `FILE` or `FILE:LINE`."""


@dataclass(frozen=True)
class Node:
    """A parsed value with its line number. The members of mappings and lists are nodes too."""

    value: object
    line: int | None
    written: str | None = field(default=None, compare=False)
    """Source text of a number or boolean, because `1.10` must stay `1.10` and not become 1.1."""

    @property
    def as_text(self) -> "Node":
        """Return a number or boolean as written in the file, and any other value unchanged."""
        return self if self.written is None else Node(self.written, self.line)

    def plain(self) -> object:
        """Return the value, and all values inside it, without line numbers."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def read_document(path: Path, *, below: Path | None = None) -> Node:
    """Read and parse a file: JSON if its name ends in `.json`, YAML otherwise.

    Args:
        path: The file.
        below: A directory with untrusted content, such as the top of a repository. Symbolic
            links below it are refused, because error messages quote the content of the file.

    Raises:
        DocumentError: The file cannot be read, is too large, or is malformed.
    """
    if below is not None:
        _refuse_links(path, below)
    text = read_text(path)
    name = str(path)
    return _read_json(text, name) if path.suffix == ".json" else _read_yaml(text, name)


def _refuse_links(path: Path, below: Path) -> None:
    folders = path.relative_to(below).parents
    links = [part for part in (path, *(below / folder for folder in folders)) if part.is_symlink()]
    # `below` itself may be a link: the user chose that directory.
    if any(link != below for link in links):
        raise DocumentError(f"{path}: the file is a symbolic link; only `--config` follows links")
    if not path.is_file():
        raise DocumentError(f"{path}: the path does not name a file")


def read_text(path: Path) -> str:
    """Read a UTF-8 file of at most `MAX_BYTES` bytes.

    Raises:
        DocumentError: The file cannot be read, is too large or is not UTF-8.
    """
    try:
        return read_limited(path, most=MAX_BYTES, follow=True).decode("utf-8-sig")
    except OSError as error:
        raise DocumentError(f"{path}: the file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path}: the file is not UTF-8 at byte {error.start}") from error


_YAML = "tag:yaml.org,2002:"
_CORE_SCHEMA = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?[0-9]+", tuple("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", tuple("-+.0123456789")),
)


def _core_resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for kind, pattern, first_characters in _CORE_SCHEMA:
        for first in first_characters:
            rule = (_YAML + kind, re.compile(rf"(?:{pattern})\Z"))
            resolvers.setdefault(first, []).append(rule)
    return resolvers


class _Loader(yaml.SafeLoader):
    """Parser of YAML 1.2's core schema, without aliases: `on`, `1:30` and dates stay text."""

    yaml_implicit_resolvers = _core_resolvers()
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # Nested aliases expand exponentially and can exhaust the memory ("billion laughs").
        if self.check_event(yaml.AliasEvent):
            raise self._refuse("aliases (`*name`) are not supported")
        if self.depth >= MAX_DEPTH:
            raise self._refuse(f"the value is nested deeper than {MAX_DEPTH}")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def _refuse(self, message: str) -> yaml.MarkedYAMLError:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        return _refused(message, event.start_mark)


def _refused(message: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=mark)


@contextmanager
def _yaml_errors(name: str) -> Iterator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        raise DocumentError(f"{place}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise DocumentError(
            f"{name}: the file is not YAML: {' '.join(str(error).split())}"
        ) from error


def _read_yaml(text: str, name: str) -> Node:
    with _yaml_errors(name):
        root = yaml.compose(text, Loader=_Loader)
        return Node(None, 1) if root is None else _from_yaml(root)


def _from_yaml(node: yaml.Node) -> Node:
    line = node.start_mark.line + 1
    if node.tag not in _TAGS:
        raise _refused(f"the tag `{node.tag}` is not supported", node.start_mark)
    if isinstance(node, yaml.MappingNode):
        return Node(_mapping(node), line)
    if isinstance(node, yaml.SequenceNode):
        return Node([_from_yaml(item) for item in node.value], line)
    value = _scalar(node)
    return Node(value, line, str(node.value) if isinstance(value, _SPELLED) else None)


def _mapping(node: yaml.MappingNode) -> dict[str, Node]:
    members: dict[str, Node] = {}
    for key_node, value_node in node.value:
        key = _key(key_node)
        if key in members:
            raise _refused(f"the key `{key}` is defined twice", key_node.start_mark)
        # Use the line of the key: a nested block starts one line later, and users look for the key.
        members[key] = replace(_from_yaml(value_node), line=key_node.start_mark.line + 1)
    return members


def _key(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _refused("a key must be text", node.start_mark)
    return str(node.value)


def _scalar(node: yaml.Node) -> object:
    # A collection's tag can be written on a scalar: `!!map x`.
    read = _SCALARS.get(node.tag.removeprefix(_YAML), str)
    try:
        return read(str(node.value))
    except ValueError as error:
        raise _refused(f"not a usable number: {error}", node.start_mark) from error


_SCALARS: Mapping[str, Callable[[str], object]] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": int,
    "float": float,
}
_SPELLED = (bool, int, float)
_TAGS = frozenset(_YAML + kind for kind in (*_SCALARS, "map", "seq"))


def _read_json(text: str, name: str) -> Node:
    try:
        json.loads(text, object_pairs_hook=_unique)
        return _JsonLines(text).read()
    except json.JSONDecodeError as error:
        raise DocumentError(f"{name}:{error.lineno}: the file is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        message = (
            f"the value is nested deeper than {MAX_DEPTH}"
            if isinstance(error, RecursionError)
            else error
        )
        raise DocumentError(f"{name}: {message}") from error


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
                return Node(dict(self._members(depth)), line)
            case "[":
                return Node(list(self._items(depth)), line)
            case _:
                begin = self._at
                value = self._scalar()
                is_spelled = isinstance(value, _SPELLED)
                return Node(value, line, self._text[begin : self._at] if is_spelled else None)

    def _members(self, depth: int) -> Iterator[tuple[str, Node]]:
        for line in self._until("}"):
            key = str(self._scalar())
            yield key, replace(self.read(depth + 1), line=line)

    def _items(self, depth: int) -> Iterator[Node]:
        for _ in self._until("]"):
            yield self.read(depth + 1)

    def _until(self, end: str) -> Iterator[int]:
        """Yield the line of each member, then skip the closing bracket `end`."""
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
