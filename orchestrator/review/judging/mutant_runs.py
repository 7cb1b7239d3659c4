"""Run checks on tests that are mixed with mutants, on the base commit and on candidates' commits.

A check must report every mutant as failed, and no other test. What it reports on the base commit
shows which tests it runs at all, and which of them fail there. A test proves something about a
candidate only if its own mutant fails on the candidate's commit, where the test itself passes.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.safe_open import read_limited
from orchestrator.review.judging.case_source import Strength
from orchestrator.review.judging.check_run import Answer, CheckRun
from orchestrator.review.judging.evidence import Evidence, Job
from orchestrator.review.judging.mutants import MOST_FILES, Mix, Mixes, has_known_runner, make_mixes
from orchestrator.review.judging.trees import Trees

KEY = "judging.key"
"""Name of the file, in the state directory, with the secret that decides which tests change."""
_KEY_SIZE = 200
_INNER_TESTS = re.compile(rb"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?mod\s")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a check reported about mixed tests on a candidate's commit."""

    commit: str
    """The candidate's commit, with the mixed tests."""
    run: CheckRun
    hidden: frozenset[int] = frozenset()
    """Mutants that the check does not report as failed."""
    wrong: frozenset[int] = frozenset()
    """Unchanged tests that the check reports as failed, and not on the base commit."""
    unclear: frozenset[int] = frozenset()
    """Tests whose results prove nothing: the base commit has no results to compare with, or a
    mutant passes that a right program may pass.
    """
    proved: frozenset[int] = frozenset()
    """Mutants that the check reports as failed."""

    @property
    def is_suspicious(self) -> bool:
        """Return whether the check does not report exactly what it has to."""
        return bool(self.hidden or self.wrong or self.unclear)


@dataclass(frozen=True)
class _Known:
    """What the base commit shows about the mutants of one mix, for one check."""

    sure: frozenset[int]
    """Mutants of tests that the check runs: it reports the mutant, or the test, as failed."""
    by_file: Mapping[str, frozenset[int]]
    """Mutants in files that cannot be loaded, by the files' paths."""
    failing: frozenset[int]
    """Unchanged tests that the check reports as failed."""

    @property
    def reported(self) -> frozenset[int]:
        """Return the mutants of tests that the check runs, or whose files cannot be loaded."""
        return self.sure.union(*self.by_file.values())


@dataclass
class MutantRuns:
    """Runs checks on commits whose tests are mixed with mutants."""

    trees: Trees
    evidence: Evidence
    commands: Sequence[str]
    hidden: Mapping[str, bytes] = field(default_factory=dict)
    """Content of the hidden files by path; they have mutants too."""
    _known: dict[str, list[_Known]] = field(default_factory=dict)
    _mixed_commits: dict[tuple[str, frozenset[int]], str] = field(default_factory=dict)
    _same_files: dict[str, frozenset[str]] = field(default_factory=dict)
    _inner_tests: dict[str, bytes] = field(default_factory=dict)
    """The tests at the end of files of the product, by path, as Rust has them."""

    def __post_init__(self) -> None:
        """Make the mixes. No check runs yet."""
        self.commands = [command for command in self.commands if has_known_runner(command)]
        self._mixes = self._make_mixes() if self.commands else None

    def _make_mixes(self) -> Mixes | None:
        trees = self.trees
        kind, entries = trees.instruments.kind, trees.entries(trees.base)
        tests = [
            path
            for path, entry in entries.items()
            if entry.is_file and (kind(path) == "test" or path.rpartition("/")[2] == "conftest.py")
        ]

        def read(path: str) -> bytes:
            if path in self.hidden:
                return self.hidden[path]
            return b"".join(trees.contents([entries[path].blob]))

        sources = [path for path, entry in entries.items()
                   if entry.is_file and path.endswith(".rs") and kind(path) is None]  # fmt: skip
        for path in sources[:MOST_FILES]:
            if found := _INNER_TESTS.search(content := read(path)):
                self._inner_tests[path] = content[found.start() :]

        paths = [*dict.fromkeys([*self.hidden, *tests, *self._inner_tests])]
        chance = _chance(trees.repository.state_dir / KEY, trees.base, trees.began.isoformat())
        return make_mixes(self.commands, paths, read, chance, first=[*self.hidden])

    def calibrate(self, base: str) -> None:
        """Run the checks on `base` with mixed tests; keep checks that report mutants as failed.

        If mutants pass of tests that pass on the base, the checks run again with an added
        expectation in these tests: it shows that they run, and that their failures are reported.
        """
        if self._mixes is None:
            return
        self._run_on_base(base, self._mixes)
        reported = frozenset(
            place for known in self._known.values() for mix in known for place in mix.reported
        )
        silent = frozenset().union(*self._mixes.halves) - reported
        if silent and self._known:
            self._mixes = self._mixes.with_added(silent)
            self._mixed_commits = {}
            self._run_on_base(base, self._mixes)

    def _run_on_base(self, base: str, mixes: Mixes) -> None:
        self.evidence.collect(self._jobs(base, self.commands))
        for command in self.commands:
            runs = [self.evidence.of(job) for job in self._jobs(base, [command])]
            known = [*_calibration(mixes, runs)]
            if any(mix.sure or mix.by_file for mix in known):
                self._known[command] = known

    @property
    def checks_tried(self) -> frozenset[str]:
        """Return the checks that report mutants as failed on the base commit."""
        return frozenset(self._known)

    @property
    def tries_hidden(self) -> bool:
        """Return whether a check reports mutants of hidden tests on the base commit."""
        if self._mixes is None:
            return False
        tests = self._mixes.tests
        return any(
            tests[place].path in self.hidden and tests[place].strength > Strength.ADDED
            for known in self._known.values()
            for mix in known
            for place in mix.reported
        )

    def unproved(self, commit: str, command: str, *, only_hidden: bool = False) -> list[str] | None:
        """Return the tests that fail on the base commit, and that prove nothing about a candidate.

        Args:
            commit: The candidate's commit, on which the check passes.
            command: A check that fails on the base commit.
            only_hidden: Whether only hidden tests count.

        Returns:
            The tests with their files; None if the check names no failing test on the base commit.
        """
        if self._mixes is None or command not in self._known:
            return None
        tests, known = self._mixes.tests, self._known[command]
        failing = frozenset[int]().union(
            *(mix.failing.union(*mix.by_file.values()) for mix in known)
        )
        if only_hidden:
            failing = frozenset(place for place in failing if tests[place].path in self.hidden)
        # protection: each-test-is-proved-by-its-own-mutant
        proved = {
            place
            for trial in self._trials(commit, command, 1)
            for place in trial.proved
            if tests[place].strength > Strength.ADDED
        }
        return [tests[place].shown for place in sorted(failing - proved)] if failing else None

    def collect(self, commits: Iterable[str]) -> None:
        """Run the checks on candidates' commits with mixed tests; suspicious results twice."""
        commits = [*commits]
        self.evidence.collect(
            job for commit in commits for job in self._jobs(commit, [*self._known])
        )
        self.evidence.collect(
            job
            for commit in commits
            for command in self._known
            for job, trial in zip(
                self._jobs(commit, [command], attempt=2), self._trials(commit, command, 1),
                strict=True,
            )
            if trial.is_suspicious
        )  # fmt: skip

    def find_forgery(self, commit: str, command: str) -> Trial | None:
        """Return a trial in which a check hides failing mutants, twice; None if there is none."""
        for trial, again in self._both(commit, command):
            if again is not None and trial.hidden & again.hidden:
                return trial
        return None

    def find_contradiction(self, commit: str, command: str) -> Trial | None:
        """Return a trial in which a check does not report exactly what it has to, if any."""
        return next(
            (trial for trial, _ in self._both(commit, command) if trial.is_suspicious), None
        )

    def has_no_result(self, commit: str, command: str) -> bool:
        """Return whether a check gave no result with mixed tests."""
        return any(trial.run.answer == "none" for trial in self._trials(commit, command, 1))

    def answer(self, commit: str) -> Answer:
        """Return `fail` if a check misreports mixed tests, `none` without a result, or `pass`."""
        for command in self._known:
            for trial, again in self._both(commit, command):
                twice = again is not None and (
                    trial.hidden & again.hidden
                    or trial.wrong & again.wrong
                    or trial.unclear & again.unclear
                )
                # protection: branch-that-hides-failing-tests-does-not-pass-queue
                if twice:
                    return "fail"
        return (
            "none"
            if any(self.has_no_result(commit, command) for command in self._known)
            else "pass"
        )

    def _both(self, commit: str, command: str) -> Iterator[tuple[Trial, Trial | None]]:
        """Yield the trials of a check, each with its repetition if it was suspicious."""
        jobs = self._jobs(commit, [command], attempt=2)
        for place, trial in enumerate(self._trials(commit, command, 1)):
            again = None
            if trial.is_suspicious:
                again = self._trial(commit, command, place, self.evidence.of(jobs[place]))
            yield trial, again

    def _trials(self, commit: str, command: str, attempt: int) -> list[Trial]:
        if command not in self._known:
            return []
        jobs = self._jobs(commit, [command], attempt=attempt)
        runs = [self.evidence.of(job) for job in jobs]
        return [self._trial(commit, command, place, run) for place, run in enumerate(runs)]

    def _trial(self, commit: str, command: str, place: int, run: CheckRun) -> Trial:
        assert self._mixes is not None  # noqa: S101
        mix, known = self._mixes.mixes[place], self._known[command][place]
        mixed = self._mix_into(commit, mix)
        if run.answer == "none":
            return Trial(commit=mixed, run=run)
        # The tests whose files the commit has as the base commit does.
        files = self._files_as_on_base(commit)
        here = frozenset(
            place for place, test in enumerate(self._mixes.tests) if test.path in files
        )
        failed = {place for place in run.failed if place < len(self._mixes.tests)}
        if run.answer == "pass":
            # protection: check-that-succeeds-reports-no-mutant-as-failed
            failed -= mix.mutants  # a check that succeeds reports no failure
        # protection: check-reports-every-mutant-as-failed
        hidden, unclear = {*(known.sure & here) - failed}, set[int]()
        unclear |= {place for place in hidden if not self._is_sure(command, place)}
        hidden -= unclear
        for mutants in known.by_file.values():
            silent = (mutants & here) - failed
            (hidden if silent == mutants & here else unclear).update(silent)
        watched = frozenset().union(*(mix.sure for mix in self._known[command]),
                                    *(each for mix in self._known[command]
                                      for each in mix.by_file.values()))  # fmt: skip
        others = (watched & here & failed) - mix.mutants
        return Trial(
            commit=mixed, run=run, hidden=frozenset(hidden), wrong=others - known.failing,
            proved=mix.mutants & here & failed,
            unclear=frozenset(unclear) | (others & known.failing),
        )  # fmt: skip

    def _is_sure(self, command: str, place: int) -> bool:
        """Return whether no right program passes a mutant.

        The base commit shows nothing about mutants of tests that fail there anyway.
        """
        assert self._mixes is not None  # noqa: S101
        strength = self._mixes.tests[place].strength
        return strength is Strength.SURE or (
            strength is Strength.ADDED
            and not any(place in mix.failing for mix in self._known[command])
        )

    def _files_as_on_base(self, commit: str) -> frozenset[str]:
        """Return the files whose tests are those of the base commit."""
        assert self._mixes is not None  # noqa: S101
        if commit not in self._same_files:
            before, after = (self.trees.entries(tree) for tree in (self.trees.base, commit))
            paths = {test.path for test in self._mixes.tests}
            # protection: tests-in-changed-file-of-product-are-those-of-base
            self._same_files[commit] = frozenset(
                path
                for path in paths
                if path in self.hidden
                or before[path] == after.get(path)
                or (
                    path in self._inner_tests
                    and path in after
                    and self._halves_of(after[path].blob)[1] == self._inner_tests[path]
                )
            )
        return self._same_files[commit]

    def _halves_of(self, blob: str) -> tuple[bytes, bytes]:
        """Return the product's part of a file, and the tests at its end."""
        content = b"".join(self.trees.contents([blob]))
        found = _INNER_TESTS.search(content)
        place = found.start() if found else len(content)
        return content[:place], content[place:]

    def _mix_into(self, commit: str, mix: Mix) -> str:
        key = commit, mix.mutants
        if key not in self._mixed_commits:
            replaced = self._files_as_on_base(commit)
            files = {path: data for path, data in mix.files.items() if path in replaced}
            entries = self.trees.entries(commit) if self._inner_tests else {}
            for path in files.keys() & self._inner_tests.keys():
                found = _INNER_TESTS.search(files[path])
                tests = files[path][found.start() :] if found else b""
                files[path] = self._halves_of(entries[path].blob)[0] + tests
            self._mixed_commits[key] = self.trees.with_files(commit, files)
        return self._mixed_commits[key]

    def _jobs(self, commit: str, commands: Sequence[str], *, attempt: int = 1) -> list[Job]:
        if self._mixes is None:
            return []
        watched = self._mixes.all_watched
        return [
            Job(
                commit=self._mix_into(commit, mix), command=command, attempt=attempt,
                watched=watched, is_secret=bool(self.hidden),
            )
            for command in commands for mix in self._mixes.mixes
        ]  # fmt: skip


def _calibration(mixes: Mixes, runs: Sequence[CheckRun]) -> Iterator[_Known]:
    number = len(mixes.tests)
    failed = [frozenset(run.failed) if run.answer == "fail" else frozenset[int]() for run in runs]
    tests = [frozenset(place for place in found if place < number) for found in failed]
    named = {mixes.tests[place].path for found in tests for place in found}
    # A test that fails on the base commit may pass there as a mutant.
    failing = frozenset().union(
        *(found - mix.mutants for mix, found in zip(mixes.mixes, tests, strict=True))
    )
    for mix, found, reported in zip(mixes.mixes, failed, tests, strict=True):
        files = {mixes.files[place - number] for place in found if place >= number}
        by_file: dict[str, frozenset[int]] = {}
        for mutant in mix.mutants:
            test = mixes.tests[mutant]
            if test.path not in named and files.intersection(test.file):
                by_file[test.path] = by_file.get(test.path, frozenset()) | {mutant}
        yield _Known((reported | failing) & mix.mutants, by_file, reported - mix.mutants)


def _chance(path: Path, *words: str) -> Random:
    """Return the source of random decisions about the mutants of a run.

    A judgement that is repeated decides in the same way, so that stored results can be used. No
    worker can read the secret that decides.
    """
    try:
        key = read_limited(path, most=_KEY_SIZE).decode()
    except OSError:
        key = secrets.token_hex(32)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, key.encode())
    return Random(hashlib.sha256("\n".join((key, *words)).encode()).hexdigest())  # noqa: S311
