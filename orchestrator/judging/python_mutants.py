"""Change expectations of Python tests, so that a test and its mutant cannot both pass."""

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random

from orchestrator.judging.case_source import CaseName, CaseSource

Function = ast.FunctionDef | ast.AsyncFunctionDef
Change = Callable[[Random], None]
"""Changes one expectation of a parsed test in place."""
_OPPOSITES = {
    "assertEqual": "assertNotEqual", "assertTrue": "assertFalse", "assertIn": "assertNotIn",
    "assertIs": "assertIsNot", "assertIsNone": "assertIsNotNone", "assertRegex": "assertNotRegex",
    "assertIsInstance": "assertNotIsInstance", "assertAlmostEqual": "assertNotAlmostEqual",
    "assertGreater": "assertLessEqual", "assertLess": "assertGreaterEqual",
}  # fmt: skip
_OPPOSITE = {**_OPPOSITES, **{other: one for one, other in _OPPOSITES.items()}}
_EQUALITIES = frozenset(
    {"assertEqual", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual",
     "assertMultiLineEqual", "assertSequenceEqual", "assertCountEqual"}
)  # fmt: skip
_OPERATORS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip
_RAISED = ("IndexError", "RuntimeError", "OSError", "ZeroDivisionError", "ImportError")
_MOST_CONSTANTS = 200


class PythonSource(CaseSource):
    """A Python file with tests for pytest or unittest."""

    def __init__(self, content: bytes) -> None:
        """Parse the file.

        Raises:
            ValueError: The file is not valid Python of this interpreter's version.
        """
        self._content = content
        try:
            found = [*_tests(ast.parse(content))]
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError("not valid Python") from error
        self._eligible = [
            place for place, (_, function) in enumerate(found) if any(_changes(function))
        ]
        self.names = tuple(_name(*found[place]) for place in self._eligible)
        self.others = tuple(_name(*one) for one in found)

    def with_mutants(self, chosen: Sequence[int], chance: Random) -> bytes:
        """Return the file, written anew, in which the chosen tests have a changed expectation."""
        tree = ast.parse(self._content)
        found = [*_tests(tree)]
        strings, numbers = _pool(tree)
        for place in sorted(chosen):
            _, function = found[self._eligible[place]]
            change = chance.choice([*_changes(function, strings, numbers)])
            change(chance)
        return (ast.unparse(ast.fix_missing_locations(tree)) + "\n").encode()


def _name(owner: str | None, function: Function) -> CaseName:
    return CaseName(function.name, owner)


def _tests(
    tree: ast.Module,
) -> Iterator[tuple[str | None, Function]]:
    for statement in tree.body:
        owner = statement.name if isinstance(statement, ast.ClassDef) else None
        for one in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            if isinstance(one, Function) and one.name.startswith("test"):
                yield owner, one


def _pool(tree: ast.Module) -> tuple[list[str], list[int]]:
    """Return constants of the file, of which the values of mutants are made."""
    strings, numbers = set[str](), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and len(strings) + len(numbers) < _MOST_CONSTANTS:
            if isinstance(node.value, str) and len(node.value) < 60 and node.value:
                strings.add(node.value)
            elif type(node.value) is int:
                numbers.add(node.value)
    return sorted(strings), sorted(numbers)


def _changes(
    function: Function,
    strings: Sequence[str] = (),
    numbers: Sequence[int] = (),
) -> Iterator[Change]:
    """Yield changes of expectations that are always checked if the test runs to its end."""
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
        return
    for statement in _straight(function.body):
        if isinstance(statement, ast.Assert):
            yield from _of_assert(statement, strings, numbers)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            yield from _of_method(statement.value, strings, numbers)
        elif isinstance(statement, ast.With):
            yield from _of_raises(statement)


def _straight(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that are executed whenever the body ends without an exception."""
    for statement in body:
        yield statement
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


def _of_assert(
    statement: ast.Assert, strings: Sequence[str], numbers: Sequence[int]
) -> Iterator[Change]:
    test = statement.test
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        (operator,), (right,) = test.ops, test.comparators
        if isinstance(operator, ast.Eq):
            sides = [side for side in (test.left, right) if _is_literal(side)]
            if len(sides) == 1:
                yield lambda chance: _change_literal(sides[0], chance, strings, numbers)
                return
        if (opposite := _OPERATORS.get(type(operator))) is not None:
            yield lambda _: test.ops.__setitem__(0, opposite())
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield lambda _: setattr(statement, "test", test.operand)
    elif not isinstance(test, ast.Constant):
        yield lambda _: setattr(statement, "test", ast.UnaryOp(ast.Not(), test))


def _of_method(call: ast.Call, strings: Sequence[str], numbers: Sequence[int]) -> Iterator[Change]:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return
    name, arguments = function.attr, call.args
    if name in _EQUALITIES and len(arguments) >= 2:
        sides = [side for side in arguments[:2] if _is_literal(side)]
        if len(sides) == 1:
            yield lambda chance: _change_literal(sides[0], chance, strings, numbers)
            return
    if name == "assertRaises" and len(arguments) > 1:
        yield from _of_exception(arguments[0])
    if (opposite := _OPPOSITE.get(name)) is not None:
        yield lambda _: setattr(function, "attr", opposite)


def _of_raises(statement: ast.With) -> Iterator[Change]:
    for item in statement.items:
        call = item.context_expr
        if not isinstance(call, ast.Call) or len(call.args) != 1:
            continue
        if ast.unparse(call.func).rpartition(".")[2] in ("raises", "assertRaises"):
            yield from _of_exception(call.args[0])


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


def _is_literal(node: ast.expr) -> bool:
    """Return whether a node is a literal with a value in it that can be changed."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return bool(_constants(node))


def _constants(node: ast.expr) -> list[ast.Constant]:
    """Return constants of a literal whose change changes the literal."""
    if isinstance(node, ast.Constant):
        return [node] if isinstance(node.value, bool | int | float | str | bytes) else []
    if isinstance(node, ast.Dict):
        return [one for value in node.values for one in _constants(value)]
    if isinstance(node, ast.List | ast.Tuple):
        return [one for value in node.elts for one in _constants(value)]
    return _constants(node.operand) if isinstance(node, ast.UnaryOp) else []


def _change_literal(
    node: ast.expr, chance: Random, strings: Sequence[str], numbers: Sequence[int]
) -> None:
    before = ast.literal_eval(node)
    constant = chance.choice(_constants(node))
    value = constant.value
    while ast.literal_eval(node) == before:
        constant.value = changed_value(value, chance, strings, numbers)


def changed_value(
    value: object, chance: Random, strings: Sequence[str] = (), numbers: Sequence[int] = ()
) -> bool | int | float | str | bytes:
    """Return another value of the same kind, which a reader cannot tell from an original one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, bytes):
        return changed_text(value.decode("latin-1"), chance).encode("latin-1")
    if isinstance(value, str):
        return chance.choice(strings) if strings and chance.random() < 0.5 else changed_text(
            value, chance
        )  # fmt: skip
    if isinstance(value, float):
        return _changed_float(value, chance)
    assert isinstance(value, int)  # noqa: S101
    if numbers and chance.random() < 0.25:
        return chance.choice(numbers)
    return value + chance.choice((-1, 1)) if abs(value) < 10 else int(_digits(str(value), chance))


def _changed_float(value: float, chance: Random) -> float:
    said = repr(value)
    plain = re.fullmatch(r"-?\d+\.\d+", said)
    return float(_digits(said, chance)) if plain else value * 2 + 1


def _digits(said: str, chance: Random) -> str:
    """Return a number with one other digit; the first digit does not become a zero."""
    place = chance.choice([place for place, one in enumerate(said) if one.isdigit()])
    leads = place == 0 or not said[place - 1].isdigit()
    digit = chance.choice("123456789" if leads else "0123456789")
    return said[:place] + digit + said[place + 1 :]


def changed_text(value: str, chance: Random) -> str:
    """Return a text with one other character of the same class, such as another small letter."""
    places = [place for place, one in enumerate(value) if one.isascii() and one.isalnum()]
    if not places:
        return value + chance.choice("aeiou")
    place = chance.choice(places)
    classes = ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    kind = next(one for one in classes if value[place] in one)
    return value[:place] + chance.choice(kind) + value[place + 1 :]
