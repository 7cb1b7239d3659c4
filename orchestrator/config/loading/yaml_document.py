"""Parse YAML into plain data with line numbers. Imported only to read a YAML file."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import yaml

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.node import MAX_DEPTH, SPELLED, DocumentError, Node

_MOST_VALUES = 20_000
"""Maximum number of values of a file with aliases, which can repeat parts exponentially."""
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_COMMENT = re.compile(r"[ \t]+(?P<word>#\d[^ \t\r\n]*)")
_MERGE = "<<"
_SAID: Mapping[str, str] = {
    "but found another document": "the file has several documents (`---`): use a file for each",
    "mapping values are not allowed here": "`: ` begins the value of a key here, "
    "which is not allowed: put quotes around a text that contains `: `",
}
"""Messages of the YAML parser that users would not understand, and what is said instead."""

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

    aliases = False
    yaml_implicit_resolvers = _core_resolvers()
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # Nested aliases expand exponentially and can exhaust the memory ("billion laughs").
        if self.check_event(yaml.AliasEvent) and not self.aliases:
            raise self._refuse("aliases (`*name`) are not supported")
        if self.depth >= MAX_DEPTH:
            raise self._refuse(f"the value is nested deeper than {MAX_DEPTH} levels")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def _refuse(self, message: str) -> yaml.MarkedYAMLError:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        return _error_at(message, event.start_mark)


class _AliasLoader(_Loader):
    """The same parser with aliases, whose expansion the caller limits."""

    aliases = True


def _error_at(message: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=mark)


def read_yaml(text: str, name: str, *, aliases: bool = False) -> Node:
    """Parse the text of a YAML file.

    Args:
        text: The text.
        name: Name of the file, for error messages.
        aliases: Whether aliases (`*name`) and merge keys (`<<`) are expanded; else they are errors.

    Raises:
        DocumentError: The text is malformed.
    """
    # YAML 1.1 ends lines at these characters, YAML 1.2 does not, and editors do not show them.
    if hidden := _LINE_ENDS.search(text):
        line = text.count("\n", 0, hidden.start()) + 1
        raise DocumentError(
            f"{name}:{line}: the invisible line end U+{ord(hidden[0]):04X} is not supported; "
            f'remove it, or write it as `\\u{ord(hidden[0]):04X}` between `"`'
        )
    try:
        root = yaml.compose(text, Loader=_AliasLoader if aliases else _Loader)
        return Node(None, 1) if root is None else _Reader(aliases=aliases).node(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        problem = str(error.problem or error.context)
        raise DocumentError(f"{place}: {_SAID.get(problem, problem)}") from error
    except yaml.YAMLError as error:
        raise DocumentError(
            f"{name}: the file is not YAML: {' '.join(str(error).split())}"
        ) from error


class _Reader:
    """Converts the nodes of one file; it limits what aliases may repeat."""

    def __init__(self, *, aliases: bool) -> None:
        self._aliases = aliases
        self._values = 0
        self._depth = 0

    def node(self, node: yaml.Node) -> Node:
        self._values += 1
        # protection: aliases-repeat-limited-number-of-values
        if self._aliases and (self._values > _MOST_VALUES or self._depth > MAX_DEPTH):
            raise _error_at("the aliases repeat too many values", node.start_mark)
        line = node.start_mark.line + 1
        if node.tag not in _TAGS and not (self._aliases and node.tag == _YAML + "merge"):
            raise _error_at(f"the tag `{node.tag}` is not supported", node.start_mark)
        self._depth += 1
        try:
            if isinstance(node, yaml.MappingNode):
                return Node(self._mapping(node), line)
            if isinstance(node, yaml.SequenceNode):
                return Node([self.node(item) for item in node.value], line)
        finally:
            self._depth -= 1
        # A collection's tag can be written on a scalar: `!!map x`.
        read = _SCALARS.get(node.tag.removeprefix(_YAML), str)
        if read is str and isinstance(node, yaml.ScalarNode) and node.style is None:
            # A text without quotes ends where a number sign begins a comment: `fix #12`.
            mark = node.end_mark
            cut = _COMMENT.match(mark.buffer or "", mark.pointer)
            if cut is not None:
                word = one_line(cut["word"], limit=40)
                raise _error_at(
                    f"the text ends before `{word}`, which begins a comment: "
                    "put quotes around the text",
                    mark,
                )
        try:
            value = read(str(node.value))
        except ValueError as error:
            raise _error_at(f"not a usable number: {error}", node.start_mark) from error
        return Node(value, line, str(node.value) if isinstance(value, SPELLED) else None)

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Node]:
        members: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _error_at("a key must be text", key_node.start_mark)
            key = str(key_node.value)
            if key in members:
                raise _error_at(f"the key `{key}` is defined twice", key_node.start_mark)
            value = self.node(value_node)
            if self._aliases and key == _MERGE:
                sources = value.value if isinstance(value.value, list) else [value]
                for source in reversed(sources):
                    merged |= source.value if isinstance(source.value, dict) else {}
                continue
            # Use the line of the key: a nested block starts one line later, and users look for the
            # key.
            members[key] = replace(value, line=key_node.start_mark.line + 1)
        return {**merged, **members}


_SCALARS: Mapping[str, Callable[[str], object]] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": int,
    "float": float,
}
_TAGS = frozenset(_YAML + kind for kind in (*_SCALARS, "map", "seq"))
