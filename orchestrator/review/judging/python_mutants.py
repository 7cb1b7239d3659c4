"""Change expectations of Python tests, so that a test and its mutant cannot both pass."""

import ast
import builtins
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from orchestrator.review.judging.python_constants import Function

Change = Callable[[Random], None]
"""Changes one expectation of a parsed test in place."""
_OPPOSITES = {
    "assertEqual": "assertNotEqual", "assertTrue": "assertFalse", "assertIn": "assertNotIn",
    "assertIs": "assertIsNot", "assertIsNone": "assertIsNotNone", "assertRegex": "assertNotRegex",
    "assertIsInstance": "assertNotIsInstance", "assertAlmostEqual": "assertNotAlmostEqual",
    "assertGreater": "assertLessEqual", "assertLess": "assertGreaterEqual",
}  # fmt: skip
_OPPOSITE = {**_OPPOSITES, **{other: name for name, other in _OPPOSITES.items()}}
EQUALITIES = frozenset(
    {"assertEqual", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual",
     "assertMultiLineEqual", "assertSequenceEqual", "assertCountEqual"}
)  # fmt: skip
_OPERATORS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip
_RAISED = ("IndexError", "RuntimeError", "OSError", "ZeroDivisionError", "ImportError")
_LARGEST_NUMBER = 1e100


@dataclass(frozen=True)
class Values:
    """What values of a test can be changed, and into what."""

    strings: Sequence[str] = ()
    numbers: Sequence[int] = ()
    known: Mapping[str, Sequence[ast.expr]] = field(default_factory=dict)
    """The literals of variables that only one expectation uses."""

    def side(self, expression: ast.expr) -> Sequence[ast.expr]:
        """Return the literals of one side of a comparison; empty if it is computed."""
        if isinstance(expression, ast.Name):
            return self.known.get(expression.id, ())
        return [expression] if is_literal(expression) else ()

    def changes(self, sides: Sequence[ast.expr]) -> Iterator[Change]:
        """Yield the change of a value, if one of two sides is known and the other is computed."""
        found = [literals for side in sides if (literals := self.side(side))]
        # protection: values-are-changed-rather-than-operators
        if len(found) == 1:
            yield lambda chance: change_literal(chance.choice(found[0]), chance, self)


def sure_changes(
    function: Function, strings: Sequence[str] = (), numbers: Sequence[int] = ()
) -> Iterator[Change]:
    """Yield changes of expectations that are always checked if the test runs to its end."""
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
        return
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    stored = Counter(name.id for name in names if isinstance(name.ctx, ast.Store))
    loaded = Counter(name.id for name in names if isinstance(name.ctx, ast.Load))
    known = {
        name: literals
        for name, literals in (*parameters_of(function), *_assignments(function))
        if loaded[name] == 1 and stored[name] <= 1
    }
    values = Values(strings, numbers, known)
    for statement in _straight(function.body):
        if isinstance(statement, ast.For):
            rows = {
                name: literals
                for name, literals in columns_of(statement.target, statement.iter)
                if loaded[name] == 1 and stored[name] == 1
            }
            yield from _in_loop(statement, Values(strings, numbers, rows))
        else:
            if isinstance(statement, ast.Assert):
                yield from changes_of_assert(statement, values)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                yield from changes_of_method(statement.value, values)
            elif isinstance(statement, ast.With):
                for item in statement.items:
                    call = item.context_expr
                    if not isinstance(call, ast.Call) or len(call.args) != 1:
                        continue
                    if ast.unparse(call.func).rpartition(".")[2] in ("raises", "assertRaises"):
                        yield from _of_exception(call.args[0])


def _in_loop(loop: ast.For, values: Values) -> Iterator[Change]:
    """Yield changes of the rows of a loop over a table: each row is checked."""
    if any(isinstance(node, ast.Break | ast.Continue) for node in ast.walk(loop)):
        return
    for statement in _straight(loop.body):
        if isinstance(statement, ast.Assert):
            yield from values.changes(equal_sides(statement))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            if isinstance(call.func, ast.Attribute) and call.func.attr == "assertEqual":
                yield from values.changes(call.args[:2])


def parameters_of(function: Function) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield the parameters of a parametrized test with their literals."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
            names = decorator.args[0] if len(decorator.args) == 2 else None
            words = [names] if isinstance(names, ast.Constant) else getattr(names, "elts", [])
            texts = [str(word.value) for word in words if isinstance(word, ast.Constant)]
            named = [ast.Name(word.strip()) for word in ",".join(texts).split(",") if word.strip()]
            if named:
                target = named[0] if len(named) == 1 else ast.Tuple([*named])
                yield from columns_of(target, decorator.args[1])


def _assignments(function: Function) -> Iterator[tuple[str, list[ast.expr]]]:
    for statement in _straight(function.body):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and is_literal(statement.value):
                yield target.id, [statement.value]


def columns_of(target: ast.expr, table: ast.expr) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield the variables of a table with their literals, a literal for each row."""
    rows = [*_rows(table)]
    if isinstance(target, ast.Name):
        if rows and all(map(is_literal, rows)):
            yield target.id, [*rows]
    elif isinstance(target, ast.Tuple):
        cells = [row.elts for row in rows if isinstance(row, ast.Tuple | ast.List)]
        if not rows or any(len(row) != len(target.elts) for row in cells):
            return
        for place, name in enumerate(target.elts):
            column = [row[place] for row in cells]
            is_whole = len(column) == len(rows) and all(map(is_literal, column))
            if isinstance(name, ast.Name) and is_whole:
                yield name.id, column


def _rows(table: ast.expr) -> Iterator[ast.expr]:
    """Yield the rows of a table: of a list, or of the items of a mapping."""
    if isinstance(table, ast.Call) and isinstance(table.func, ast.Attribute):
        inner = table.func.value
        if isinstance(inner, ast.Dict) and table.func.attr == "items" and None not in inner.keys:
            for key, value in zip(inner.keys, inner.values, strict=True):
                yield ast.Tuple([key, value], ast.Load())  # type: ignore[list-item]
    for row in table.elts if isinstance(table, ast.List | ast.Tuple) else ():
        if isinstance(row, ast.Call) and ast.unparse(row.func).endswith("param") and row.args:
            yield ast.Tuple(row.args, ast.Load()) if len(row.args) > 1 else row.args[0]
        else:
            yield row


def _straight(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that are executed whenever the body ends without an exception."""
    for statement in body:
        yield statement
        # protection: mutants-only-where-always-checked
        if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
            return
        if isinstance(statement, ast.With) and not _may_swallow(statement):
            yield from _straight(statement.body)


def _may_swallow(statement: ast.With) -> bool:
    called = [
        node.func for item in statement.items for node in [item.context_expr]
        if isinstance(node, ast.Call)
    ]  # fmt: skip
    names = [ast.unparse(function).rpartition(".")[2] for function in called]
    return len(names) < len(statement.items) or any(
        re.search("raises|suppress|warn|logs|deprecated", name, re.IGNORECASE) for name in names
    )


def equal_sides(statement: ast.Assert) -> list[ast.expr]:
    """Return the two sides of `assert a == b`; none for other assertions."""
    test = statement.test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return []
    is_rough = "approx" in ast.unparse(test).lower()
    return (
        [test.left, *test.comparators] if isinstance(test.ops[0], ast.Eq) and not is_rough else []
    )


def changes_of_assert(statement: ast.Assert, values: Values) -> Iterator[Change]:
    """Yield changes of the values of an `assert` statement; if there are none, of its operator."""
    test = statement.test
    if changes := [*values.changes(equal_sides(statement))]:
        yield from changes
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        if (opposite := _OPERATORS.get(type(test.ops[0]))) is not None:
            yield lambda _: test.ops.__setitem__(0, opposite())
        if sides := equal_sides(statement):
            # Values that are equal to everything are also unequal to nothing.
            yield lambda _: test.comparators.__setitem__(0, _wrap(sides[1]))
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield lambda _: setattr(statement, "test", test.operand)
    elif not isinstance(test, ast.Constant):
        yield lambda _: setattr(statement, "test", ast.UnaryOp(ast.Not(), test))


def _wrap(value: ast.expr) -> ast.expr:
    return ast.Tuple([value], ast.Load())


def changes_of_method(call: ast.Call, values: Values) -> Iterator[Change]:
    """Yield changes of the values of a call of a method such as `assertEqual`, or of its name."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return
    name, arguments = function.attr, call.args
    if name in EQUALITIES and len(arguments) >= 2:
        is_table = name == "assertCountEqual"  # it compares the keys of mappings only
        sides = [
            argument
            for argument in arguments[:2]
            if not (is_table and isinstance(argument, ast.Dict))
        ]
        if changes := [*values.changes(sides)]:
            yield from changes
            return
    if name == "assertRaises" and len(arguments) > 1:
        yield from _of_exception(arguments[0])
    if name == "assertEqual" and len(arguments) >= 2:
        yield lambda _: arguments.__setitem__(1, _wrap(arguments[1]))
    if (opposite := _OPPOSITE.get(name)) is not None:
        yield lambda _: setattr(function, "attr", opposite)


def _of_exception(expected: ast.expr) -> Iterator[Change]:
    kind = getattr(builtins, expected.id, None) if isinstance(expected, ast.Name) else None
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or kind is Exception:
        return
    others = [
        name for name in _RAISED
        if not issubclass(getattr(builtins, name), kind)
        and not issubclass(kind, getattr(builtins, name))
    ]  # fmt: skip
    yield lambda chance: setattr(expected, "id", chance.choice(others))


def is_literal(node: ast.expr) -> bool:
    """Return whether a node is a literal with a value in it that can be changed."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return bool(constants_of(node))


def constants_of(node: ast.expr) -> list[ast.Constant]:
    """Return constants of a literal whose change changes the literal."""
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, int | float):
            return [node] if abs(value) < _LARGEST_NUMBER else []
        return [node] if isinstance(value, str | bytes) else []
    if isinstance(node, ast.Dict):
        return [constant for value in node.values for constant in constants_of(value)]
    if isinstance(node, ast.List | ast.Tuple):
        return [constant for value in node.elts for constant in constants_of(value)]
    return constants_of(node.operand) if isinstance(node, ast.UnaryOp) else []


def change_literal(node: ast.expr, chance: Random, values: Values) -> None:
    """Change one constant of a literal, so that the literal has another value."""
    before = ast.literal_eval(node)
    constant = chance.choice(constants_of(node))
    value = constant.value
    while ast.literal_eval(node) == before:
        constant.value = change_value(value, chance, values.strings, values.numbers)


def change_value(
    value: object, chance: Random, strings: Sequence[str] = (), numbers: Sequence[int] = ()
) -> bool | int | float | str | bytes:
    """Return another value of the same kind, which a reader cannot tell from an original one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, bytes):
        return change_text(value.decode("latin-1"), chance).encode("latin-1")
    if isinstance(value, str):
        return chance.choice(strings) if strings and chance.random() < 0.5 else change_text(
            value, chance
        )  # fmt: skip
    if isinstance(value, float):
        said = repr(value)
        plain = re.fullmatch(r"-?\d+\.\d+", said)
        return float(_digits(said, chance)) if plain else value * 2 + 1
    assert isinstance(value, int)  # noqa: S101
    if numbers and chance.random() < 0.25:
        return chance.choice(numbers)
    return value + chance.choice((-1, 1)) if abs(value) < 10 else int(_digits(str(value), chance))


def _digits(said: str, chance: Random) -> str:
    """Return a number with one other digit; the first digit does not become a zero."""
    place = chance.choice([place for place, letter in enumerate(said) if letter.isdigit()])
    leads = place == 0 or not said[place - 1].isdigit()
    digit = chance.choice("123456789" if leads else "0123456789")
    return said[:place] + digit + said[place + 1 :]


def change_text(value: str, chance: Random) -> str:
    """Return a text with one other character of the same class, such as another small letter."""
    places = [place for place, letter in enumerate(value) if letter.isascii() and letter.isalnum()]
    if not places:
        return value + chance.choice("aeiou")
    place = chance.choice(places)
    classes = ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    kind = next(letters for letters in classes if value[place] in letters)
    return value[:place] + chance.choice(kind) + value[place + 1 :]
