"""Mix the tests of a project with mutants: copies of a test with a changed expectation.

A test and its mutant cannot both pass. Half of the tests are replaced in one mix, and the other
half in a second mix. Names, files and order stay the same, so that code under test sees nothing by
which it could tell a mutant from a test, unless it knows the tests or computes the right results.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from random import Random

from orchestrator.review.judging.case_source import CaseSource, ChanceOf, Strength
from orchestrator.review.judging.check_run import Watched
from orchestrator.review.judging.programs import programs_of
from orchestrator.review.judging.python_constants import Function
from orchestrator.review.judging.python_source import PythonSource
from orchestrator.review.judging.text_mutants import TextSource

MOST_FILES = 400
"""Maximum number of test files that have mutants."""
MOST_TESTS = 4000
"""Maximum number of tests that have mutants."""
_LARGEST = 1024**2


@dataclass(frozen=True)
class MixedTest:
    """A test that one of two mixes replaces by a mutant."""

    path: str
    name: str
    watched: Watched
    file: tuple[Watched, ...]
    """Reports that the whole file could not be loaded."""
    strength: Strength
    """What the mutant proves; `NONE` if there is none."""

    @property
    def shown(self) -> str:
        """Return file and name of the test."""
        return f"{self.path}::{self.name}"


@dataclass(frozen=True)
class Mix:
    """Test files in which some of the tests are replaced by mutants."""

    files: Mapping[str, bytes]
    mutants: frozenset[int]
    """Indexes of the replaced tests."""


@dataclass(frozen=True)
class Mixes:
    """Two mixes of the same tests: each test that has a mutant is replaced in one of them."""

    tests: tuple[MixedTest, ...]
    halves: tuple[frozenset[int], ...]
    """Indexes of the tests that are replaced, for each mix."""
    sources: Sequence[tuple[str, CaseSource]]
    places: Sequence[tuple[int, int]]
    """For each test, the index of its file and its index in the file."""
    seed: str
    """Decides how tests change."""

    @cached_property
    def mixes(self) -> tuple[Mix, ...]:
        """Return the mixes."""
        return tuple(self._mix(half) for half in self.halves)

    @property
    def all_watched(self) -> tuple[Watched, ...]:
        """Return what is looked for in the output of a check: the tests, then their files."""
        return (*(test.watched for test in self.tests), *self.files)

    @property
    def files(self) -> tuple[Watched, ...]:
        """Return the files with mixed tests."""
        return tuple(dict.fromkeys(report for test in self.tests for report in test.file))

    def with_added(self, tests: Collection[int]) -> "Mixes":
        """Return mixes in which these tests have an added expectation instead of a changed one."""
        changed = tuple(
            replace(test, strength=min(test.strength, Strength.ADDED)) if number in tests else test
            for number, test in enumerate(self.tests)
        )
        return replace(self, tests=changed)

    def _mix(self, half: frozenset[int]) -> Mix:
        chosen: dict[int, dict[int, Strength]] = {}
        added: dict[int, set[int]] = {}
        for number, test in enumerate(self.tests):
            file, place = self.places[number]
            if number in half:
                chosen.setdefault(file, {})[place] = test.strength
            elif test.strength is Strength.ADDED:
                added.setdefault(file, set()).add(place)
        files = {}
        for file, (path, source) in enumerate(self.sources):
            of_file, holding = chosen.get(file, {}), frozenset(added.get(file, ()))
            files[path] = source.with_mutants(of_file, holding, self._chance_of(path))
        return Mix(files, half)

    def _chance_of(self, path: str) -> ChanceOf:
        return lambda place: Random(f"{self.seed} {place} {path}")  # noqa: S311


@dataclass(frozen=True)
class _Runner:
    """Test runners of one language: patterns of their commands and test files."""

    command: "re.Pattern[str]"
    files: "re.Pattern[str]"
    """Pattern of the names of test files."""
    read: Callable[[bytes, "dict[str, list[Function]]"], CaseSource]
    broken: Callable[[PurePosixPath], Sequence[tuple[str, ...]]]
    """Returns texts by which the runner reports that a file cannot be loaded."""
    others: "re.Pattern[str]" = re.compile(r"(?!)")
    """Pattern of the names of other files that are read for what tests use."""


_RUNNERS = (
    _Runner(
        command=re.compile(r"\b(pytest|py\.test|unittest|nose2)\b"),
        files=re.compile(r"test.*\.py|.*_tests?\.py"),
        read=PythonSource,
        others=re.compile(r".*\.py"),
        broken=lambda path: [("_FailedTest", path.stem), ("ERROR collecting", path.name)],
    ),
    _Runner(
        command=re.compile(r"\b(vitest|jest|mocha|ava)\b|\bnode\b.*--test\b|\b(bun|deno) test\b"),
        files=re.compile(r".*\.[cm]?[jt]sx?"),
        read=lambda content, _: TextSource(content, "js"),
        broken=lambda path: [(path.name,)],
    ),
    _Runner(
        command=re.compile(r"\bgo test\b"),
        files=re.compile(r".*_test\.go"),
        read=lambda content, _: TextSource(content, "go"),
        broken=lambda _: [("[build failed]",)],
    ),
    _Runner(
        command=re.compile(r"\bcargo (?:\S+ )*?(?:test|nextest)\b"),
        files=re.compile(r".*\.rs"),
        read=lambda content, _: TextSource(content, "rust"),
        broken=lambda _: [("could not compile",)],
    ),
)
_INDIRECT = re.compile(
    r"\b(g?make|npm|npx|pnpm|yarn|bun|deno|tox|nox|hatch|just|task|rake|mage|ninja|bazel|turbo|nx)\b"
)
"""Programs that may start a test runner."""


def has_known_runner(command: str) -> bool:
    """Return whether a check may start a test runner whose tests can be mixed with mutants."""
    return bool(_runners_of(command))


def is_read_by_runner(command: str, path: str) -> bool:
    """Return whether a check names a test runner that takes a file for a file of tests."""
    name = PurePosixPath(path).name
    return any(
        runner.command.search(command) and runner.files.fullmatch(name) for runner in _RUNNERS
    )


def make_mixes(
    commands: Sequence[str],
    paths: Sequence[str],
    read: Callable[[str], bytes],
    chance: Random,
    first: Sequence[str] = (),
) -> Mixes | None:
    """Return mixes of tests and mutants for the test runners that checks start.

    If a command starts the runner through another program, as `make test` does, the runner is
    found by the names of the test files.

    Args:
        commands: The commands of the checks.
        paths: Paths of the test files.
        read: Function that returns the content of a test file.
        chance: Decides which tests are replaced, and how.
        first: Paths that come first if there are too many.

    Returns:
        The mixes; None if the test runner is unknown, or no test can be changed.
    """
    runners = [
        runner for runner in _RUNNERS if any(runner in _runners_of(each) for each in commands)
    ]
    seed = f"{chance.getrandbits(128):x}"
    found = [*_sources(_order(commands, paths, chance, first), runners, read)]
    everywhere = Counter(name.name for _, _, source in found for name in source.names)
    tests: list[MixedTest] = []
    places: list[tuple[int, int]] = []
    for number, (path, runner, source) in enumerate(found):
        for place, (name, strength) in enumerate(
            zip(source.names, source.strengths(), strict=True)
        ):
            words: tuple[str, ...] = (name.name,)
            if everywhere[name.name] > 1:
                above = (PurePosixPath(path).stem, *([name.owner] if name.owner else []))
                words = (*above, name.name)
            broken = tuple(map(Watched, runner.broken(PurePosixPath(path))))
            tests.append(MixedTest(path, name.name, Watched(words), broken, strength))
            places.append((number, place))
    tests = [*_distinct(tests)]
    changed = [place for place, test in enumerate(tests) if test.strength][:MOST_TESTS]
    if not changed:
        return None
    chance.shuffle(changed)
    half = (len(changed) + 1) // 2
    # A mix without a mutant has other files than the base, which prove as much.
    halves = frozenset(changed[:half]), frozenset(changed[half:])
    sources = [(path, source) for path, _, source in found]
    return Mixes(tuple(tests), halves, sources, places, seed)


def _distinct(tests: Sequence[MixedTest]) -> Iterator[MixedTest]:
    """Yield the tests, with the directories of their files where others are reported like them."""
    counts = Counter(test.watched.words for test in tests)
    longer = [
        test if counts[test.watched.words] == 1
        else replace(test, watched=Watched((*PurePosixPath(test.path).parts[:-1],
                                            *test.watched.words)))
        for test in tests
    ]  # fmt: skip
    counts = Counter(test.watched.words for test in longer)
    for test in longer:
        # protection: only-tests-that-no-other-is-reported-like
        if counts[test.watched.words] > 1:
            test = replace(test, strength=Strength.NONE)
        yield test


def _order(
    commands: Sequence[str], paths: Sequence[str], chance: Random, first: Sequence[str]
) -> list[str]:
    """Return paths in the order in which they are used: a check that names one may run no other."""
    shuffled = chance.sample(sorted(paths), len(paths))

    def place(path: str) -> tuple[bool, bool]:
        name = PurePosixPath(path).name.partition(".")[0]
        return path not in first, not any(name in command for command in commands)

    return sorted(shuffled, key=place)


def _sources(
    paths: Sequence[str], runners: Sequence[_Runner], read: Callable[[str], bytes]
) -> Iterator[tuple[str, _Runner, CaseSource]]:
    found = others = 0
    shared = dict[str, list[Function]]()
    for path in paths:
        name = PurePosixPath(path).name
        runner = next((known for known in runners if known.files.fullmatch(name)), None)
        helps = runner is None and any(known.others.fullmatch(name) for known in runners)
        if (runner is None and not helps) or MOST_FILES in (found, others):
            continue
        content = read(path)
        source = None
        if len(content) <= _LARGEST:
            with suppress(ValueError):
                source = (runner or _RUNNERS[0]).read(content, shared)
        if runner is None:
            others += 1
        elif source is not None and source.names:
            found += 1
            yield path, runner, source


def _runners_of(command: str) -> tuple[_Runner, ...]:
    named = tuple(runner for runner in _RUNNERS if runner.command.search(command))
    if named:
        return named
    is_indirect = _INDIRECT.search(command) is not None or programs_of([command])
    # protection: every-test-runner-is-tried-with-mutants
    return _RUNNERS if is_indirect else ()
