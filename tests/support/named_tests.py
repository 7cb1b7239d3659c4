"""Tests that are named by tables of other tests."""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def missing_tests(rows: Iterable[object]) -> list[str]:
    """Return the places among some rows, `FILE::FUNCTION`, where no such test is."""
    places = [row.partition("::") for row in rows if isinstance(row, str)]
    return [
        f"{file}::{function}"
        for file, _, function in places
        if function != "*" and function not in functions_of(file)
    ]
