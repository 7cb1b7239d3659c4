"""Check that tests which are named in tables exist."""

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
    """Return those rows, `FILE::FUNCTION`, for which no test exists."""
    places = [row.partition("::") for row in rows if isinstance(row, str)]
    return [
        f"{file}::{function}"
        for file, _, function in places
        if function != "*" and function not in functions_of(file)
    ]
