"""Change values on which a Python test probably depends, if none is known to be always checked.

A right program may pass such a mutant; then nothing is proved. The first group of changes that is
found is used: expected values that a helper compares, values of comparisons, values of tables,
directions of comparisons, and values that other functions get.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.review.judging.python_constants import Function
from orchestrator.review.judging.python_mutants import (
    EQUALITIES,
    Change,
    Values,
    change_literal,
    changes_of_assert,
    changes_of_method,
    equal_sides,
    is_literal,
)

_WANTED = frozenset(
    {"want", "wanted", "wants", "expected", "expect", "expects", "exp", "result", "results",
     "output", "out", "answer", "returns", "should_be", "desired", "correct", "right", "reference",
     "golden", "snapshot"}
)  # fmt: skip
"""Names of expected values."""
_DEEPEST = 3
Helpers = Mapping[str, Sequence[Function]]


def likely_changes(function: Function, helpers: Helpers, values: Values) -> Iterator[Change]:
    """Yield changes of the best group of values or comparisons in a test."""
    nodes = [*ast.walk(function)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    groups = (
        _of_helpers(calls, helpers, values),
        _of_tables(nodes, values),
        _of_comparisons(nodes, values),
        _of_cells(nodes, values),
        _of_calls(nodes, values),
    )
    yield from next((found for group in groups if (found := [*group])), [])


def _change(literal: ast.expr, values: Values) -> Change:
    return lambda chance: change_literal(literal, chance, values)


def _of_helpers(calls: Sequence[ast.Call], helpers: Helpers, values: Values) -> Iterator[Change]:
    """Yield changes of arguments that a function of the tests compares with something."""
    for call in calls:
        name = _called(call)
        for helper in helpers.get(name, ()):
            compared = _compared(helper, helpers, _DEEPEST)
            for parameter, argument in _bound(call, helper):
                if parameter in compared and is_literal(argument):
                    yield _change(argument, values)


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr if isinstance(call.func.value, ast.Name | ast.Call) else ""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _bound(call: ast.Call, helper: Function) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters of a function with the arguments of a call."""
    names = [item.arg for item in (*helper.args.posonlyargs, *helper.args.args)]
    if isinstance(call.func, ast.Attribute) and names[:1] in (["self"], ["cls"]):
        names = names[1:]
    yield from zip(names, call.args, strict=False)
    yield from ((word.arg, word.value) for word in call.keywords if word.arg is not None)


def _compared(helper: Function, helpers: Helpers, depth: int) -> set[str]:
    """Return the parameters of a function that it compares with something, unchanged."""
    found = set[str]()
    for node in ast.walk(helper):
        sides: Sequence[ast.expr] = ()
        if isinstance(node, ast.Assert):
            sides = equal_sides(node)
        elif isinstance(node, ast.Call):
            if _called(node) in EQUALITIES:
                sides = node.args[:2]
            elif depth:
                for other in helpers.get(_called(node), ()):
                    if other is not helper:
                        inner = _compared(other, helpers, depth - 1)
                        found |= {
                            argument.id
                            for parameter, argument in _bound(node, other)
                            if parameter in inner and isinstance(argument, ast.Name)
                        }
        found |= {side.id for side in sides if isinstance(side, ast.Name)}
    arguments = helper.args
    own = {item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return found & own - {"self", "cls"}


def _rows(node: ast.AST) -> Sequence[ast.expr]:
    """Return the rows of a table over which a loop or a parametrized test runs."""
    table: ast.expr | None = None
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        table = node.iter
        if isinstance(table, ast.Call) and table.args and _called(table) in (
            "enumerate", "sorted", "reversed", "list", "tuple", "iter",
        ):  # fmt: skip
            table = table.args[0]
        elif isinstance(table, ast.Call) and isinstance(table.func, ast.Attribute):
            table = table.func.value if table.func.attr in ("items", "values") else table
    elif isinstance(node, ast.Call) and len(node.args) >= 2:
        is_parameters = ast.unparse(node.func).endswith("parametrize")
        table = node.args[1] if is_parameters else None
    if isinstance(table, ast.Dict):
        return table.values
    return table.elts if isinstance(table, ast.List | ast.Tuple | ast.Set) else ()


def _cells(row: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(row, ast.Dict):
        return [
            (str(key.value) if isinstance(key, ast.Constant) else "", value)
            for key, value in zip(row.keys, row.values, strict=True)
        ]
    if isinstance(row, ast.Call):
        words = [(word.arg or "", word.value) for word in row.keywords]
        return [*(("", value) for value in row.args), *words]
    return [("", cell) for cell in row.elts] if isinstance(row, ast.Tuple | ast.List) else []


def _of_tables(nodes: Sequence[ast.AST], values: Values) -> Iterator[Change]:
    """Yield changes of the expected values in the rows of tables."""
    for node in nodes:
        for row in _rows(node):
            cells = [(name, cell) for name, cell in _cells(row) if name not in ("id", "marks")]
            named = [cell for name, cell in cells if name.lower() in _WANTED and is_literal(cell)]
            last = [cell for _, cell in cells[-1:] if len(cells) > 1 and is_literal(cell)]
            if isinstance(node, ast.For) and isinstance(_table_of(node), ast.Dict):
                last = [row] if is_literal(row) and not isinstance(row, ast.Dict) else last
            yield from (_change(cell, values) for cell in named or last)


def _table_of(loop: ast.For) -> ast.expr | None:
    table = loop.iter
    is_method = isinstance(table, ast.Call) and isinstance(table.func, ast.Attribute)
    return table.func.value if is_method else table  # type: ignore[attr-defined]


def _of_comparisons(nodes: Sequence[ast.AST], values: Values) -> Iterator[Change]:
    for node in nodes:
        if isinstance(node, ast.Assert):
            yield from changes_of_assert(node, values)
        elif isinstance(node, ast.Call):
            yield from changes_of_method(node, values)


def _of_cells(nodes: Sequence[ast.AST], values: Values) -> Iterator[Change]:
    for node in nodes:
        yield from (_change(row, values) for row in _rows(node) if is_literal(row))


def _of_calls(nodes: Sequence[ast.AST], values: Values) -> Iterator[Change]:
    """Yield changes of values that a function gets whose result is not used."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            named = [word.value for word in call.keywords if (word.arg or "").lower() in _WANTED]
            found = [item for item in (*named, *reversed(call.args)) if is_literal(item)]
            yield from (_change(item, values) for item in found[:1])
