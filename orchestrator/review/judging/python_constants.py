"""Give each Python test constants of its own, so that a change of a value concerns one test only.

Tables and expected values are often constants of a module or a class, values of fixtures, or set in
`setUp`. A test that uses one gets a copy in its place.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LARGEST = 5000
"""Maximum number of nodes of a constant that is copied."""
_CHANGES = frozenset(
    {"append", "extend", "update", "insert", "remove", "pop", "clear", "sort", "reverse", "add",
     "setdefault", "popitem", "discard"}
)  # fmt: skip
_PURE = frozenset(
    {"param", "timedelta", "date", "datetime", "time", "frozenset", "set", "dict", "list", "tuple",
     "bytes", "bytearray", "complex", "float", "int", "str", "namedtuple"}
)  # fmt: skip
"""Functions whose call gives an equal value each time; so do those with a capital letter."""
_IDENTITY = frozenset({"assertIs", "assertIsNot", "id"})
_SETS_UP = frozenset({"setUp", "setUpClass", "setup_method", "setup_class", "asyncSetUp"})
Constants = Mapping[str, ast.expr]


def inline_constants(
    tree: ast.Module,
    tests: Sequence[tuple[str | None, Function]],
    helpers: Mapping[str, Sequence[Function]],
) -> None:
    """Replace names of constants in tests by copies of the constants.

    Args:
        tree: The file, which is changed.
        tests: Its tests, each with the name of its class.
        helpers: Functions of all test files by their names; fixtures are among them.
    """
    changed = _changed_names(tree)
    module = _constants(tree.body, changed)
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    of_classes = {name: _of_class(node, changed) for name, node in classes.items()}
    for owner, function in tests:
        known = dict(module)
        for name in _parameters(function):
            known.pop(name, None)
            if (value := _value_of_fixture(helpers.get(name, ()))) is not None:
                known[name] = value
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                known.pop(node.id, None)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                for name in node.names:
                    known.pop(name, None)
        own = dict[str, ast.expr]()
        for name in reversed([*_line(owner, classes)]):
            own |= of_classes[name]
        _Inline(known, own, of_classes).change(function)


def _line(name: str | None, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Yield a class of the file and the classes that it derives from, nearest first."""
    left, seen = [name], set[str]()
    while left:
        known = left.pop(0)
        if known is None or known in seen or known not in classes:
            continue
        seen.add(known)
        yield known
        left += [base.id for base in classes[known].bases if isinstance(base, ast.Name)]


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    return [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _changed_names(tree: ast.Module) -> set[str]:
    """Return names, also of attributes, whose values may change."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _CHANGES:
                found.add(_name(node.func.value))
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found.add(_name(node.value))
        elif isinstance(node, ast.AugAssign):
            found.add(_name(node.target))
        elif isinstance(node, ast.Global):
            found.update(node.names)
    return found


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _constants(body: Sequence[ast.stmt], changed: set[str]) -> dict[str, ast.expr]:
    found = dict[str, ast.expr]()
    stored = [
        node.id
        for statement in body
        if not isinstance(statement, Function | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    ]
    for statement in body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        is_only = isinstance(target, ast.Name) and stored.count(target.id) == 1
        if is_only and _name(target) not in changed and _is_constant(value):
            found[_name(target)] = value
    return found


def _of_class(node: ast.ClassDef, changed: set[str]) -> dict[str, ast.expr]:
    """Return the constants of a class, and attributes that are set once, before each test."""
    body = [item for item in node.body if not isinstance(item, Function)]
    found = {
        name: value
        for name, value in _constants(body, changed).items()
        # The names of a class are not known in its methods.
        if not any(isinstance(part, ast.Name) for part in ast.walk(value))
    }
    stores = dict[str, list[ast.expr | None]]()
    for function in (item for item in node.body if isinstance(item, Function)):
        for statement in ast.walk(function):
            if not isinstance(statement, ast.Assign):
                continue
            is_plain = function.name in _SETS_UP and statement in function.body
            for target in statement.targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load):
                        value = statement.value if is_plain and part is target else None
                        stores.setdefault(part.attr, []).append(value)
    for name, values in stores.items():
        found.pop(name, None)
        (value, *more) = values
        if not more and value is not None and _is_constant(value) and name not in changed:
            found[name] = value
    return found


def _value_of_fixture(functions: Sequence[Function]) -> ast.expr | None:
    """Return the value of a fixture that does nothing but return a constant."""
    if len(functions) != 1:
        return None
    (function,) = functions
    named = [ast.unparse(decorator).partition("(")[0] for decorator in function.decorator_list]
    if not any(name.rpartition(".")[2] == "fixture" for name in named) or _parameters(function):
        return None
    body = [
        item
        for item in function.body
        if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
    ]
    if len(body) != 1:
        return None
    value = body[0].value if isinstance(body[0], ast.Return | ast.Expr) else None
    if isinstance(value, ast.Yield):
        value = value.value
    names = value is not None and any(isinstance(part, ast.Name) for part in ast.walk(value))
    return value if value is not None and not names and _is_constant(value) else None


def _is_constant(value: ast.expr) -> bool:
    """Return whether each evaluation of an expression gives an equal value."""
    nodes = [*ast.walk(value)]
    if len(nodes) > _LARGEST:
        return False
    for node in nodes:
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name not in _PURE and not name[:1].isupper():
                return False
        elif isinstance(
            node,
            ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Await
            | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.IfExp | ast.Subscript,
        ):  # fmt: skip
            return False
    return not isinstance(value, ast.Name | ast.Attribute)


class _Inline(ast.NodeTransformer):
    def __init__(self, known: Constants, own: Constants, classes: Mapping[str, Constants]) -> None:
        self._known, self._own, self._classes = known, own, classes

    def change(self, function: Function) -> None:
        function.body = [self.visit(item) for item in function.body]
        function.decorator_list = [
            self.visit(item) if isinstance(item, ast.Call) else item
            for item in function.decorator_list
        ]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return deepcopy(self._known[node.id]) if node.id in self._known else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            name = node.value.id
            values = self._own if name in ("self", "cls") else self._classes.get(name, {})
            if node.attr in values:
                return deepcopy(values[node.attr])
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        by_identity = any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
        return node if by_identity else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return node if _name(node.func) in _IDENTITY else self.generic_visit(node)
