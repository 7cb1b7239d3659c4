"""Read and rewrite Python files with tests for pytest and unittest."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from orchestrator.review.judging.case_source import CaseName, CaseSource, ChanceOf, Strength
from orchestrator.review.judging.python_constants import Function, inline_constants
from orchestrator.review.judging.python_likely import likely_changes
from orchestrator.review.judging.python_mutants import Values, sure_changes

_MOST_CONSTANTS = 200


class PythonSource(CaseSource):
    """A Python file with tests for pytest or unittest."""

    def __init__(self, content: bytes, helpers: dict[str, list[Function]] | None = None) -> None:
        """Parse the file.

        Args:
            content: The file.
            helpers: The functions of all files that were read, by their names; those of this file
                are added.

        Raises:
            ValueError: The file is not valid Python of this interpreter's version.
        """
        self._content = content
        self._helpers = {} if helpers is None else helpers
        try:
            tree = ast.parse(content)
            ast.unparse(tree)
            self._found = [*_tests(tree)]
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError("not valid Python") from error
        self.names = tuple(CaseName(function.name, owner) for owner, function in self._found)
        for node in ast.walk(tree):
            if isinstance(node, Function):
                self._helpers.setdefault(node.name, []).append(node)

    def strengths(self) -> tuple[Strength, ...]:
        """Return, for each test, what its mutant proves."""
        found = []
        for function in self._inlined()[1]:
            if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
                found.append(Strength.NONE)
            elif any(sure_changes(function)):
                found.append(Strength.SURE)
            else:
                likely = [*likely_changes(function, self._helpers, Values())]
                found.append(Strength.OWN if likely else Strength.ADDED)
        return tuple(found)

    def with_mutants(
        self, chosen: Mapping[int, Strength], added: frozenset[int], chance_of: ChanceOf
    ) -> bytes:
        """Return the file, written anew, in which the chosen tests have a changed expectation."""
        tree, tests = self._inlined()
        strings, numbers = _pool(tree)
        for place, function in enumerate(tests):
            strength = chosen.get(place)
            if place in added or strength is Strength.ADDED:
                holds = strength is not Strength.ADDED
                _add_expectation(function, chance_of(place), numbers, holds=holds)
            elif strength is Strength.SURE:
                chance = chance_of(place)
                chance.choice([*sure_changes(function, strings, numbers)])(chance)
            elif strength is Strength.OWN:
                chance = chance_of(place)
                values = Values(strings, numbers)
                chance.choice([*likely_changes(function, self._helpers, values)])(chance)
        # The file is never that of the base, which a candidate knows.
        noise = f"# {chance_of(-1).getrandbits(64)}\n"
        return (ast.unparse(ast.fix_missing_locations(tree)) + "\n" + noise).encode()

    def _inlined(self) -> tuple[ast.Module, list[Function]]:
        """Return the parsed file, whose tests have constants of their own, and the tests."""
        tree = ast.parse(self._content)
        tests = [*_tests(tree)]
        inline_constants(tree, tests, self._helpers)
        return tree, [function for _, function in tests]


def _tests(tree: ast.Module) -> Iterator[tuple[str | None, Function]]:
    left: list[tuple[str | None, ast.stmt]] = [(None, statement) for statement in tree.body]
    while left:
        owner, statement = left.pop(0)
        if isinstance(statement, ast.ClassDef):
            left[:0] = [(statement.name, inner) for inner in statement.body]
        elif isinstance(statement, Function) and statement.name.startswith("test"):
            yield owner, statement


def _add_expectation(
    function: Function, chance: Random, numbers: Sequence[int], *, holds: bool
) -> None:
    """Add an expectation about two constants to the end of a test."""
    value = chance.choice([*numbers] or [chance.randrange(100)])
    other = value if holds else value + chance.choice((-1, 1))
    ends = isinstance(function.body[-1], ast.Return | ast.Raise)
    place = len(function.body) - ends
    function.body[place:place] = ast.parse(f"assert {value} == {other}").body


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
