"""Mix the tests of a project with mutants: copies of a test with a changed expectation.

A test and its mutant cannot both pass. Half of the tests are replaced in one mix, and the other
half in a second mix. Names, files and order stay the same, so that code under test sees nothing by
which it could tell a mutant from a test, unless it knows the tests or computes the right results.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random

from orchestrator.judging.case_source import CaseSource
from orchestrator.judging.check_run import Watched
from orchestrator.judging.programs import programs_of
from orchestrator.judging.python_mutants import PythonSource
from orchestrator.judging.text_mutants import TextSource

MOST_FILES = 100
"""Maximum number of test files that have mutants."""
MOST_TESTS = 1000
"""Maximum number of tests that have mutants."""
_LARGEST = 1024**2


@dataclass(frozen=True)
class MixedTest:
    """A test that one of two mixes replaces by a mutant."""

    path: str
    watched: Watched
    file: tuple[Watched, ...]
    """Reports that the whole file could not be loaded."""


@dataclass(frozen=True)
class Mix:
    """Test files in which some of the tests are replaced by mutants."""

    files: Mapping[str, bytes]
    mutants: frozenset[int]
    """Indexes of the replaced tests."""


@dataclass(frozen=True)
class Mixes:
    """Two mixes of the same tests: each test is a mutant in one of them."""

    tests: tuple[MixedTest, ...]
    mixes: tuple[Mix, ...]

    @property
    def all_watched(self) -> tuple[Watched, ...]:
        """Return what is looked for in the output of a check: the tests, then their files."""
        return (*(test.watched for test in self.tests), *self.files)

    @property
    def files(self) -> tuple[Watched, ...]:
        """Return the files with mixed tests."""
        return tuple(dict.fromkeys(report for test in self.tests for report in test.file))


@dataclass(frozen=True)
class _Runner:
    """Test runners of one language: patterns of their commands and test files."""

    command: "re.Pattern[str]"
    files: "re.Pattern[str]"
    """Pattern of the names of test files."""
    read: Callable[[bytes], CaseSource]
    broken: Callable[[PurePosixPath], Sequence[tuple[str, ...]]]
    """Returns texts by which the runner reports that a file cannot be loaded."""


_RUNNERS = (
    _Runner(
        command=re.compile(r"\b(pytest|py\.test|unittest|nose2)\b"),
        files=re.compile(r"test.*\.py|.*_tests?\.py"),
        read=PythonSource,
        broken=lambda path: [("_FailedTest", path.stem), ("ERROR collecting", path.name)],
    ),
    _Runner(
        command=re.compile(r"\b(vitest|jest|mocha|ava)\b|\bnode\b.*--test\b|\b(bun|deno) test\b"),
        files=re.compile(r".*\.[cm]?[jt]sx?"),
        read=lambda content: TextSource(content, "js"),
        broken=lambda path: [(path.name,)],
    ),
    _Runner(
        command=re.compile(r"\bgo test\b"),
        files=re.compile(r".*_test\.go"),
        read=lambda content: TextSource(content, "go"),
        broken=lambda _: [("[build failed]",)],
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
    sources = [*_sources(_order(commands, paths, chance, first), runners, read)]
    everywhere = Counter(name.name for _, _, source in sources for name in source.others)
    tests: list[MixedTest] = []
    places: list[tuple[int, int]] = []
    for number, (path, runner, source) in enumerate(sources):
        for place, name in enumerate(source.names):
            words: tuple[str, ...] = (name.name,)
            if everywhere[name.name] > 1:
                above = (PurePosixPath(path).stem, *([name.owner] if name.owner else []))
                words = (*above, name.name)
            broken = tuple(map(Watched, runner.broken(PurePosixPath(path))))
            tests.append(MixedTest(path, Watched(words), broken))
            places.append((number, place))
    counts = Counter(test.watched.words for test in tests)
    # Only tests that no other test is reported like.
    distinct = [place for place, test in enumerate(tests) if counts[test.watched.words] == 1]
    chosen = distinct[:MOST_TESTS]
    if not chosen:
        return None
    chance.shuffle(chosen)
    halves = chosen[: (len(chosen) + 1) // 2], chosen[(len(chosen) + 1) // 2 :]
    kept = sorted(chosen)
    index = {number: place for place, number in enumerate(kept)}
    mixes = tuple(_mix(sources, places, half, index, chance) for half in halves if half)
    return Mixes(tuple(tests[number] for number in kept), mixes)


def _mix(
    sources: Sequence[tuple[str, _Runner, CaseSource]],
    places: Sequence[tuple[int, int]],
    half: Sequence[int],
    index: Mapping[int, int],
    chance: Random,
) -> Mix:
    files = {
        path: source.with_mutants([places[test][1] for test in half if places[test][0] == number],
                                  chance)
        for number, (path, _, source) in enumerate(sources)
    }  # fmt: skip
    return Mix(files, frozenset(index[test] for test in half))


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
    found = 0
    for path in paths:
        name = PurePosixPath(path).name
        runner = next((known for known in runners if known.files.fullmatch(name)), None)
        if runner is None or found == MOST_FILES:
            continue
        content = read(path)
        try:
            source = runner.read(content) if len(content) <= _LARGEST else None
        except ValueError:
            continue
        if source is not None and source.names:
            found += 1
            yield path, runner, source


def _runners_of(command: str) -> tuple[_Runner, ...]:
    named = tuple(runner for runner in _RUNNERS if runner.command.search(command))
    if named:
        return named
    is_indirect = _INDIRECT.search(command) is not None or programs_of([command])
    # protection: every-test-runner-is-tried-with-mutants
    return _RUNNERS if is_indirect else ()
