"""Marks of protections in the package: `# protection: NAME` on the line above a statement."""

import ast
import functools
import re
from collections.abc import Mapping
from pathlib import Path

from tests.assurance.mutation.ways import BLOCKS, AmbiguousError, Statement, Way

ROOT = Path(__file__).parents[3]
_PACKAGE = "orchestrator"
_MARK = re.compile(r"# protection: *(.*)$", re.M)


@functools.cache
def files_of_marks(root: Path) -> dict[str, list[Path]]:
    """Return for every mark the files with it, relative to `root`; once for each place."""
    found: dict[str, list[Path]] = {}
    for path in sorted((root / _PACKAGE).rglob("*.py")):
        for name in _MARK.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, []).append(path.relative_to(root))
    return found


def without(text: str, mark: str, way: Way) -> str:
    """Return the text of a module without a protection.

    Raises:
        AmbiguousError: The mark has no statement, or the way does not fit it or changes nothing.
    """
    tree = ast.parse(text)
    siblings, number = statement_below(_statements(tree), text, mark)
    changed = _changed(siblings[number], way)
    siblings[number : number + 1] = [] if changed is None else [changed]
    if not siblings:
        siblings.append(ast.Pass())
    return f"{ast.unparse(ast.fix_missing_locations(tree))}\n"


def statement_without(path: Path, mark: str, way: Way) -> str:
    """Return the marked statement of a file without a protection; a file is parsed once.

    Raises:
        AmbiguousError: The mark has no statement, or the way does not fit it or changes nothing.
    """
    text, found = _parsed(path)
    siblings, number = statement_below(found, text, mark)
    changed = _changed(siblings[number], way)
    return "pass" if changed is None else ast.unparse(ast.fix_missing_locations(changed))


@functools.cache
def _parsed(path: Path) -> tuple[str, Mapping[int, tuple[list[Statement], int]]]:
    text = path.read_text(encoding="utf-8")
    return text, _statements(ast.parse(text))


def _changed(statement: Statement, way: Way) -> Statement | None:
    changed = way.change(statement)
    if changed is not None and ast.dump(changed) == ast.dump(statement):
        raise AmbiguousError(f"{way} changes nothing")
    return changed


def statement_below(
    statements: Mapping[int, tuple[list[Statement], int]], text: str, mark: str
) -> tuple[list[Statement], int]:
    """Return the block with the marked statement, and the statement's position in it."""
    lines = text.splitlines()
    marks = [n for n, line in enumerate(lines) if line.strip() == f"# protection: {mark}"]
    if len(marks) != 1:
        raise AmbiguousError(f"the mark `{mark}` has {len(marks)} lines of its own")
    rest = (n for n, line in enumerate(lines) if n > marks[0] and not line.strip().startswith("#"))
    line = next(rest) + 1
    if line not in statements:
        raise AmbiguousError(f"no statement begins in line {line}, below the mark `{mark}`")
    return statements[line]


def _statements(tree: ast.Module) -> Mapping[int, tuple[list[Statement], int]]:
    """Return for every line in which a statement begins the outermost block and its place there."""
    found: dict[int, tuple[list[Statement], int]] = {}
    for node in ast.walk(tree):
        for name in BLOCKS:
            if isinstance(block := getattr(node, name, None), list):
                for number, statement in enumerate(block):
                    found.setdefault(_first_line(statement), (block, number))
    return found


def _first_line(statement: Statement) -> int:
    if isinstance(statement, ast.match_case):
        return statement.pattern.lineno
    decorators = getattr(statement, "decorator_list", [])
    return min(node.lineno for node in (statement, *decorators))
