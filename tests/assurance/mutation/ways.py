"""Ways to take a protection away from the statement that it marks."""

import ast
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Statement = ast.stmt | ast.excepthandler | ast.match_case
BLOCKS = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})
_MAIN = ("test", "value", "iter", "type", "guard", "exc")
"""Fields with the main expression of a statement."""


class AmbiguousError(Exception):
    """A way does not fit the marked statement, or fits it in several places."""


@dataclass(frozen=True)
class Way(ABC):
    """A way to take a protection away."""

    at: str = field(default="", kw_only=True)
    """Name of the mark; empty if the mark has the name of the protection."""

    @abstractmethod
    def change(self, statement: Statement) -> Statement | None:
        """Return the statement without the protection, or `None` to remove the statement."""


@dataclass(frozen=True)
class Remove(Way):
    """Remove the statement with its blocks."""

    def change(self, statement: Statement) -> None:
        """Return `None`."""


@dataclass(frozen=True)
class Instead(Way):
    """Replace the condition, value or iterable of the statement by an expression."""

    expression: str

    def change(self, statement: Statement) -> Statement:
        """Replace the main expression."""
        return _with_main(statement, _parsed(self.expression))


@dataclass(frozen=True)
class Never(Way):
    """Replace the condition, or this part of the statement, by `False`.

    An `except` then catches nothing, and a `for` iterates over nothing.
    """

    part: str = ""

    def change(self, statement: Statement) -> Statement:
        """Replace the condition."""
        if self.part:
            return _replaced(statement, self.part, ast.Constant(value=False))
        empty = isinstance(statement, ast.ExceptHandler | ast.For | ast.AsyncFor)
        return _with_main(statement, _parsed("()" if empty else "False"))


@dataclass(frozen=True)
class Always(Way):
    """Replace the condition, or this part of the statement, by `True`."""

    part: str = ""

    def change(self, statement: Statement) -> Statement:
        """Replace the condition."""
        if self.part:
            return _replaced(statement, self.part, ast.Constant(value=True))
        return _with_main(statement, _parsed("True"))


@dataclass(frozen=True)
class Without(Way):
    """Remove an argument, element or operand: a name of an argument or key, or an expression."""

    part: str

    def change(self, statement: Statement) -> Statement:
        """Remove the part."""
        wanted = self.part if self.part.isidentifier() else ast.dump(_parsed(self.part))

        def is_meant(node: ast.AST | None) -> bool:
            match node:
                case ast.keyword(arg=name) if name == wanted:
                    return True
                case ast.Constant(value=value) if value == wanted:
                    return True
                case None:
                    return False
            return wanted in (ast.dump(node), _name(node))

        return _changed_once(statement, lambda node: _shortened(node, is_meant), self)


@dataclass(frozen=True)
class Give(Way):
    """Give an argument (`name=value`) or an entry of a dictionary (`"key": value`) this value."""

    part: str

    def change(self, statement: Statement) -> Statement:
        """Replace the value."""
        try:
            given = _parsed(self.part)
        except SyntaxError:
            given = _parsed(f"{{{self.part}}}")

        def give(node: ast.AST) -> Iterator[ast.AST]:
            if isinstance(node, ast.keyword) and isinstance(given, ast.keyword):
                if node.arg == given.arg:
                    yield given
            elif isinstance(node, ast.Dict) and isinstance(given, ast.Dict):
                for number, key in enumerate(node.keys):
                    if key is not None and ast.dump(key) == ast.dump(given.keys[0] or key):
                        values = [*node.values]
                        values[number] = given.values[0]
                        yield ast.Dict(keys=node.keys, values=values)

        return _changed_once(statement, give, self)


@dataclass(frozen=True)
class Unwrap(Way):
    """Replace the call of this function or method by its last positional argument.

    A method name after a dot (`.strip`) stands for the object of the method.
    """

    function: str

    def change(self, statement: Statement) -> Statement:
        """Replace the call."""
        function = self.function.removeprefix(".")

        def unwrap(node: ast.AST) -> Iterator[ast.AST]:
            if isinstance(node, ast.Call) and _name(node.func) == function:
                if self.function != function and isinstance(node.func, ast.Attribute):
                    yield node.func.value
                elif self.function == function and node.args:
                    yield node.args[-1]

        return _changed_once(statement, unwrap, self)


@dataclass(frozen=True)
class Replace(Way):
    """Replace an expression or argument of the statement by another."""

    old: str
    new: str

    def change(self, statement: Statement) -> Statement:
        """Replace the expression."""
        return _replaced(statement, self.old, _parsed(self.new))


@dataclass(frozen=True)
class Text(Way):
    """Replace a piece of a text in the statement."""

    old: str
    new: str = ""

    def change(self, statement: Statement) -> Statement:
        """Replace the piece."""

        def edit(node: ast.AST) -> Iterator[ast.AST]:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for _ in range(node.value.count(self.old)):
                    yield ast.Constant(value=node.value.replace(self.old, self.new))
            elif isinstance(node, ast.JoinedStr):
                written = ast.unparse(node)
                for _ in range(written.count(self.old)):
                    yield ast.parse(written.replace(self.old, self.new), mode="eval").body

        return _changed_once(statement, edit, self)


@dataclass(frozen=True)
class Both(Way):
    """Change the statement in one way, and then in another."""

    first: Way
    second: Way

    def change(self, statement: Statement) -> Statement | None:
        """Apply both ways."""
        changed = self.first.change(statement)
        return None if changed is None else self.second.change(changed)


def _parsed(text: str) -> ast.AST:
    """Parse an expression, or an argument of a call."""
    call = ast.parse(f"_({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    (parsed,) = [*call.args, *call.keywords]
    return parsed


def _name(node: ast.AST) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")


def _shortened(node: ast.AST, is_meant: Callable[[ast.AST | None], bool]) -> Iterator[ast.AST]:
    """Yield the node without each element, argument, filter or operand that is meant."""
    if isinstance(node, ast.Dict):
        yield from _shortened_dict(node, is_meant)
        return
    if isinstance(node, ast.BinOp):
        yield from [node.right] * is_meant(node.left) + [node.left] * is_meant(node.right)
        return
    for name, values in ast.iter_fields(node):
        if not isinstance(values, list) or name in BLOCKS:
            continue
        for number, value in enumerate(values):
            if isinstance(value, ast.AST) and is_meant(value):
                shorter = copy.copy(node)
                rest = values[:number] + values[number + 1 :]
                setattr(shorter, name, rest)
                # The only operand of an `and` or `or` stands alone.
                yield rest[0] if isinstance(node, ast.BoolOp) and len(rest) == 1 else shorter


def _shortened_dict(
    node: ast.Dict, is_meant: Callable[[ast.AST | None], bool]
) -> Iterator[ast.Dict]:
    entries = [*zip(node.keys, node.values, strict=True)]
    for entry in entries:
        key, value = entry
        if is_meant(key) or (key is None and is_meant(value)):
            rest = [other for other in entries if other is not entry]
            yield ast.Dict(keys=[key for key, _ in rest], values=[value for _, value in rest])


def _with_main(statement: Statement, expression: ast.AST) -> Statement:
    changed = copy.copy(statement)
    for name in _MAIN:
        if isinstance(getattr(statement, name, None), ast.expr):
            setattr(changed, name, expression)
            return changed
    raise AmbiguousError(f"`{type(statement).__name__}` has no condition, value or iterable")


def _replaced(statement: Statement, part: str, new: ast.AST) -> Statement:
    wanted = ast.dump(_parsed(part))

    def replace(node: ast.AST) -> Iterator[ast.AST]:
        if ast.dump(node) == wanted:
            yield new

    return _changed_once(statement, replace, part)


def _changed_once(
    statement: Statement, variants: Callable[[ast.AST], Iterator[ast.AST]], way: object
) -> Statement:
    """Return the statement with the only variant of the only node of its own that has one."""
    found = [*_variants(statement, variants)]
    if len(found) != 1:
        raise AmbiguousError(f"{way} fits {len(found)} places of the statement")
    assert isinstance(found[0], Statement)
    return found[0]


def _variants(node: ast.AST, variants: Callable[[ast.AST], Iterator[ast.AST]]) -> Iterator[ast.AST]:
    found = [*variants(node)]
    yield from found
    if found and isinstance(node, ast.JoinedStr):
        # Its texts are nodes as well.
        return
    for name, value in ast.iter_fields(node):
        if name in BLOCKS and isinstance(node, Statement):
            continue
        children = value if isinstance(value, list) else [value]
        for number, child in enumerate(children):
            if not isinstance(child, ast.AST):
                continue
            for variant in _variants(child, variants):
                parent = copy.copy(node)
                if isinstance(value, list):
                    setattr(parent, name, [*value[:number], variant, *value[number + 1 :]])
                else:
                    setattr(parent, name, variant)
                yield parent
