"""Parse YAML into plain data with line numbers. Imported only to read a YAML file."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import yaml

from orchestrator.config.node import MAX_DEPTH, SPELLED, DocumentError, Node

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
            raise self._refuse(f"the value is nested deeper than {MAX_DEPTH} levels")
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


def read_yaml(text: str, name: str) -> Node:
    """Parse the text of a YAML file.

    Args:
        text: The text.
        name: Name of the file, for error messages.

    Raises:
        DocumentError: The text is malformed.
    """
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
    return Node(value, line, str(node.value) if isinstance(value, SPELLED) else None)


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
_TAGS = frozenset(_YAML + kind for kind in (*_SCALARS, "map", "seq"))
