"""Marks of protections in the package: `# protection: NAME` on the line above a statement."""

import ast
import functools
import re
from collections.abc import Iterator
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
    siblings, number = statement_below(tree, text, mark)
    changed = way.change(siblings[number])
    if changed is not None and ast.dump(changed) == ast.dump(siblings[number]):
        raise AmbiguousError(f"{way} changes nothing")
    siblings[number : number + 1] = [] if changed is None else [changed]
    if not siblings:
        siblings.append(ast.Pass())
    return f"{ast.unparse(ast.fix_missing_locations(tree))}\n"


def statement_below(tree: ast.Module, text: str, mark: str) -> tuple[list[Statement], int]:
    """Return the block with the marked statement, and the statement's position in it."""
    lines = text.splitlines()
    marks = [n for n, line in enumerate(lines) if line.strip() == f"# protection: {mark}"]
    if len(marks) != 1:
        raise AmbiguousError(f"the mark `{mark}` has {len(marks)} lines of its own")
    rest = (n for n, line in enumerate(lines) if n > marks[0] and not line.strip().startswith("#"))
    line = next(rest) + 1
    for siblings in _blocks(tree):
        for number, statement in enumerate(siblings):
            if _first_line(statement) == line:
                return siblings, number
    raise AmbiguousError(f"no statement begins in line {line}, below the mark `{mark}`")


def _blocks(tree: ast.Module) -> Iterator[list[Statement]]:
    for node in ast.walk(tree):
        for name in BLOCKS:
            if isinstance(block := getattr(node, name, None), list):
                yield block


def _first_line(statement: Statement) -> int:
    if isinstance(statement, ast.match_case):
        return statement.pattern.lineno
    decorators = getattr(statement, "decorator_list", [])
    return min(node.lineno for node in (statement, *decorators))
