"""Find out how a candidate treated the tests; each finding (flag) has a proof."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.base.text.path_patterns import outside
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.judging import Tests
from orchestrator.review.judging.changes import NewLine
from orchestrator.review.judging.check_run import CheckRun
from orchestrator.review.judging.instruments import Instruments
from orchestrator.review.judging.judgement import Doubt, Flag, FlagKind, Proof
from orchestrator.review.judging.trees import Entry
from orchestrator.review.judging.tripwires import Touch

MOST_LISTED = 20
"""Maximum number of changed files or lines that are reported for one kind of finding."""
_SUPPRESSED = re.compile(
    r"#\s*noqa|#\s*type:\s*ignore|pragma:\s*no cover|eslint-disable|@ts-ignore|@ts-expect-error|"
    r"//\s*nolint|#\s*pylint:\s*disable|rubocop:disable|NOSONAR"
)
_LITERAL = re.compile(
    rb"""(["'])((?:(?!\1)[^\\\n]){6,200})\1|(?<![\w.])(\d[\d_.]{5,40})(?![\w.])"""
)
_GONE_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class CheckRuns:
    """The results of one check that concern a candidate."""

    check: str
    base: CheckRun
    protected: CheckRun
    varying: frozenset[str] = frozenset()
    """Names of tests that only one of two runs on the base commit has."""
    commit: CheckRun | None = None
    """Result on the candidate's own commit; None if the check did not run there."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about how a candidate treated the tests."""

    base: str
    commit: str
    protected: str
    tests: Tests
    instruments: Instruments
    before: Mapping[str, Entry]
    after: Mapping[str, Entry]
    runs: Sequence[CheckRuns]
    paths: Sequence[str]
    """Patterns of the files that the task allows to change; empty if any file may be changed."""
    added: Sequence[NewLine]
    doubts: Sequence[Doubt]
    trials: Sequence[Flag]
    """Findings of the checks on tests that are mixed with mutants."""
    touches: Sequence[Touch]
    """New lines of the product that touch the test runner."""
    literals: frozenset[str]
    """Texts and numbers in the base commit's tests, or in hidden tests, that no other file has."""

    @property
    def is_empty(self) -> bool:
        """Return whether the candidate changed no file."""
        return self.before == self.after

    @property
    def paths_outside(self) -> list[str]:
        """Return the changed, new and removed files that the task does not allow to change."""
        paths = {**self.before, **self.after}
        changed = (path for path in paths if self.before.get(path) != self.after.get(path))
        return outside(self.paths, changed) if self.paths else []

    @property
    def instrument_changes(self) -> list[str]:
        """Return changed tests, and changed or new files that control tests."""
        paths = [path for path, entry in self.before.items() if self.after.get(path) != entry]
        found = [path for path in paths if self.instruments.kind(path)]
        new = (path for path in self.after if path not in self.before)
        return [*found, *(path for path in new if self.instruments.kind(path) == "control")]

    @property
    def gone(self) -> list[str]:
        """Return the test files of the base commit that the candidate removed."""
        kind = self.instruments.kind
        return [path for path in self.before if path not in self.after and kind(path) == "test"]


def flags_of(facts: Facts) -> tuple[Flag, ...]:
    """Return the findings about a candidate, those that exclude it first."""
    if facts.is_empty:
        # protection: candidate-without-change-is-out
        return (Flag(flag="empty", out=True, message="the candidate changed nothing"),)
    found = [
        *_find_weakened_tests(facts),
        *_find_new_skips(facts),
        *_nothing_ran(facts),
        *facts.trials,
    ]
    found += [*_doubtful(facts), *_find_touches(facts)]
    return (*found, *_remarks(facts))


def literals_of(files: Iterable[bytes]) -> frozenset[str]:
    """Return texts and numbers of at least six characters in test files."""
    found = (match for data in files for match in _LITERAL.finditer(data))
    return frozenset((match[2] or match[3]).decode("utf-8", "replace") for match in found)


def _find_weakened_tests(facts: Facts) -> Iterator[Flag]:
    """Find checks that pass only with the candidate's own versions of existing tests."""
    for run in facts.runs:
        if run.commit is None or (run.commit.answer, run.protected.answer) != ("pass", "fail"):
            continue
        proof = (
            Proof(tree="commit", commit=facts.commit, check=run.check, answer="pass"),
            Proof(tree="protected", commit=facts.protected, check=run.check, answer="fail"),
        )
        if gone := facts.gone:
            named = ", ".join(one_line(path) for path in gone[:_GONE_SHOWN])
            message = f"removed {named}: with the base's tests, the check fails"
            yield Flag(flag="tests_removed", out=True, message=message, file=gone[0], proof=proof)
        else:
            file = next(iter(facts.instrument_changes), None)
            name = one_line(file or "tests")
            message = f"changed {name}: with the base's version, the check fails"
            # protection: candidate-that-weakened-tests-is-out
            yield Flag(flag="tests_weakened", out=True, message=message, file=file, proof=proof)
        return


def _find_new_skips(facts: Facts) -> Iterator[Flag]:
    for run in facts.runs:
        before = run.base.cases or {}
        for proof, seen in _with_proof(facts, run):
            new = [
                name
                for name, outcome in (seen.cases or {}).items()
                if outcome == "skipped" and before.get(name, "skipped") != "skipped"
            ]
            if new:
                out, message = facts.tests != "free", f"skips {_name_tests(new)}"
                yield Flag(flag="new_skips", out=out, message=message, proof=proof)
                return


def _nothing_ran(facts: Facts) -> Iterator[Flag]:
    for run in facts.runs:
        if run.base.cases is None or run.protected.answer != "pass":
            continue
        after = run.protected.cases or {}
        # protection: tests-whose-names-vary-are-not-lost
        missing = [name for name in run.base.cases if name not in after and name not in run.varying]
        # protection: check-without-tests-passes-no-candidate
        # protection: candidate-that-lost-tests-is-out
        if missing or not after:
            message = f"did not run {_name_tests(missing)}" if missing else "no test ran"
            proof, _ = next(_with_proof(facts, run))
            yield Flag(flag="nothing_ran", out=True, message=message, proof=proof)
            return


def _with_proof(facts: Facts, run: CheckRuns) -> Iterator[tuple[tuple[Proof, ...], CheckRun]]:
    """Yield the runs of a check on a candidate's trees, each with the proof that compares it."""
    check = run.check
    base = Proof(tree="base", commit=facts.base, check=check, answer=run.base.answer)
    seen = run.protected
    proof = Proof(tree="protected", commit=facts.protected, check=check, answer=seen.answer)
    yield (base, proof), seen
    if (own := run.commit) is not None:
        proof = Proof(tree="commit", commit=facts.commit, check=check, answer=own.answer)
        yield (base, proof), own


def _name_tests(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the test {one_line(names[0])}{more}"


def _doubtful(facts: Facts) -> Iterator[Flag]:
    """Find checks that pass only because of the candidate's new tests or configuration files."""
    kind: FlagKind
    for doubt in facts.doubts:
        proof = (
            Proof(tree="protected", commit=facts.protected, check=doubt.check, answer="pass"),
            Proof(tree=doubt.tree, commit=doubt.commit, check=doubt.check, answer="fail"),
        )
        before, after, kind_of = facts.before, facts.after, facts.instruments.kind
        if doubt.tree == "frozen":
            new = [path for path in after if path not in before]
            kind, files = "needs_new_tests", [path for path in new if kind_of(path) == "test"]
        else:
            changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
            kind = "needs_own_configuration"
            files = [path for path in changed if kind_of(path) == "mixed"]
        named = ", ".join(one_line(path) for path in files[:_GONE_SHOWN])
        message = f"a check passes only with the candidate's {named}: review the change"
        yield Flag(flag=kind, out=False, message=message, file=next(iter(files), None), proof=proof)


def _find_touches(facts: Facts) -> Iterator[Flag]:
    for touch in facts.touches[:_GONE_SHOWN]:
        message = f"new code touches the test runner ({one_line(touch.what)}): review it"
        # protection: candidate-that-touches-test-runner-needs-person
        yield Flag(
            flag="touches_runner", out=False, message=message, file=touch.path, line=touch.line
        )


def _remarks(facts: Facts) -> Iterator[Flag]:
    for path in facts.instrument_changes[:MOST_LISTED]:
        mixed = facts.instruments.kind(path) == "mixed" and path in facts.after
        counts = "counts" if mixed or facts.tests == "free" else "does not count"
        message = f"changed {one_line(path)} (the candidate's version {counts})"
        yield Flag(flag="instrument_changed", out=False, message=message, file=path)
    for path in facts.paths_outside[:MOST_LISTED]:
        message = f"changed {one_line(path)}, which is outside of the task's paths"
        yield Flag(flag="scope", out=False, message=message, file=path)
    suppressed = [line for line in facts.added if _SUPPRESSED.search(line.text)]
    for line in suppressed[:MOST_LISTED]:
        message = f"silences a tool: {one_line(line.text.strip(), limit=80)}"
        yield _at(line, "suppressed", message)
    echoes = [line for line in facts.added if facts.literals & literals_of([line.text.encode()])]
    for line in echoes[:MOST_LISTED]:
        yield _at(line, "literal_echo", "contains a text or number of the tests")


def _at(line: NewLine, kind: str, message: str) -> Flag:
    return Flag(flag=kind, out=False, message=message, file=line.path, line=line.number)  # type: ignore[arg-type]
