"""Tests of the ways to remove a protection from the statement below its mark."""

import ast

import pytest

from tests.assurance.mutation.marks import without
from tests.assurance.mutation.ways import (
    Always,
    AmbiguousError,
    Both,
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Text,
    Unwrap,
    Way,
    Without,
)

CHANGES = {
    "statement removed": (Remove(), "check(x)", "pass"),
    "block removed": (Remove(), "if x:\n        f()", "pass"),
    "condition": (Never(), "if x:\n        f()", "if False:\n        f()"),
    "loop": (Never(), "for x in y:\n        f()", "for x in ():\n        f()"),
    "result": (Always(), "return x is None", "return True"),
    "operand is false": (Never("x < 5"), "return x < 5 or y", "return False or y"),
    "operand of the condition": (Without("y"), "if x and y:\n        f(y)", "if x:\n        f(y)"),
    "last operand removed": (Without("y"), "return x or y", "return x"),
    "argument removed": (Without("key"), "f(1, key=2)", "f(1)"),
    "entry removed": (Without("'a.b'"), "d = {'a.b': 1, 'c': 2}", "d = {'c': 2}"),
    "element removed": (Without("'a'"), "d = ('a', 'b')", "d = ('b',)"),
    "term removed": (Without("os.B"), "d = os.A | os.B", "d = os.A"),
    "filter removed": (Without("x.ok"), "d = [x for x in y if x.ok]", "d = [x for x in y]"),
    "argument given": (Give("key=3"), "f(1, key=(\n        2))", "f(1, key=3)"),
    "entry given": (Give("'a': 3"), "d = {'a': 1, 'c': 2}", "d = {'a': 3, 'c': 2}"),
    "value": (Instead("g()"), "x = f(1)", "x = g()"),
    "call unwrapped": (Unwrap("clean"), "x = a.clean(1, y, limit=3)", "x = y"),
    "method unwrapped": (Unwrap(".strip"), "x = f(y.strip('/'))", "x = f(y)"),
    "expression": (Replace("a.b", "c"), "x = f(a . b)", "x = f(c)"),
    "text": (Text("nosuid,"), "x = f'{y},nosuid,{z}'", "x = f'{y},{z}'"),
    "two changes": (Both(Without("a"), Without("b")), "f(a=1, b=2, c=3)", "f(c=3)"),
    "program": (Text("-f &&", "-f ;"), "x = 'nft -f && echo'", "x = 'nft -f ; echo'"),
}


@pytest.mark.parametrize(("way", "before", "after"), CHANGES.values(), ids=CHANGES)
def test_way_changes_the_marked_statement_only(way: Way, before: str, after: str) -> None:
    text = "def f():\n    {0}\n    # protection: it\n    # Why.\n    {0}\n    {0}\n"
    expected = f"def f():\n    {before}\n    {after}\n    {before}\n"
    found = ast.parse(without(text.format(before), "it", way))
    if after == "pass":
        found.body[0].body.insert(1, ast.Pass())
    assert ast.dump(found) == ast.dump(ast.parse(expected))


@pytest.mark.parametrize(
    ("before", "clause", "never"),
    [
        ("if a:\n    f()", "elif b:\n    f()", "elif False:"),
        ("try:\n    f()", "except b:\n    f()", "except ():"),
        ("match a:\n  case 1:\n    f()", "  case b if c:\n    f()", "case b if False:"),
    ],
)
def test_clauses_can_be_marked(before: str, clause: str, never: str) -> None:
    assert never in without(f"{before}\n# protection: it\n{clause}\n", "it", Never())


@pytest.mark.parametrize(
    ("way", "statement"),
    [
        (Without("a"), "f(b)"),
        (Without("a"), "f(a, g(a))"),
        (Never(), "pass"),
        (Text("a"), "x = 'aa'"),
        (Replace("a", "b"), "f(a, a)"),
    ],
)
def test_way_that_does_not_fit_is_an_error(way: Way, statement: str) -> None:
    with pytest.raises(AmbiguousError):
        without(f"# protection: it\n{statement}\n", "it", way)


@pytest.mark.parametrize(
    "text", ["f(a,\n# protection: it\nb)\n", "f()  # protection: it\ng()\n", "f()\n"]
)
def test_mark_that_is_not_above_a_statement_is_an_error(text: str) -> None:
    with pytest.raises(AmbiguousError):
        without(text, "it", Remove())
