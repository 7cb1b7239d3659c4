"""Compare candidates with the base commit by the results of checks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from orchestrator.base.errors import ConfigError, EngineError
from orchestrator.review.judging.cases import Case
from orchestrator.review.judging.check_run import Answer, CheckRun
from orchestrator.review.judging.evidence import Evidence, Job
from orchestrator.review.judging.judge_request import JudgingRules
from orchestrator.review.judging.judgement import CheckVerdict, Doubt, Verdict
from orchestrator.review.judging.trees import Trees

MOST_BROKEN = 20
"""Maximum number of broken tests that are listed for a check."""
_VERDICTS: Mapping[tuple[Answer, Answer], Verdict] = {
    ("pass", "pass"): "kept",
    ("pass", "fail"): "broke",
    ("fail", "pass"): "fixed",
    ("fail", "fail"): "still_broken",
}


def try_base(rules: JudgingRules, evidence: Evidence, base: str) -> None:
    """Run the checks on the base commit.

    Raises:
        ConfigError: A check that must fail before the fix (`must_fix`) passes.
        EngineError: A check gave no result.
    """
    jobs = {command: Job(commit=base, command=command) for command in rules.all_checks}
    evidence.collect(jobs.values())
    for command, job in jobs.items():
        answer = evidence.of(job).answer
        if answer == "none":
            raise EngineError(
                f"the check `{command}` gave no result on the base commit",
                key="check.no-result",
                hint="`orchestrator doctor` checks the engine and the machine",
            )
        # protection: check-that-must-be-fixed-fails-on-base
        if answer == "pass" and command in rules.must_fix:
            raise _proves_nothing(command)


class Comparison:
    """Runs the checks on the base commit and on candidates, and compares the results."""

    def __init__(self, rules: JudgingRules, trees: Trees, evidence: Evidence) -> None:
        """Store the arguments. No check runs yet."""
        self._rules = rules
        self._trees = trees
        self._evidence = evidence
        self._base = trees.base
        self.unstable: set[str] = set()
        """Checks whose results on the base commit differ between runs."""
        self.varying: dict[str, frozenset[str]] = {}
        """Names of tests that only one of two runs on the base commit has, by the check."""

    def on(self, commit: str, command: str, attempt: int = 1) -> CheckRun:
        """Return the result of a check's first or second run (`attempt` 1 or 2) on a commit."""
        return self._evidence.of(Job(commit=commit, command=command, attempt=attempt))

    def compare(self, cases: Sequence[Case]) -> None:
        """Run checks on candidates, repeat them if results differ from the base's, set verdicts."""
        self._evidence.collect(
            Job(commit=case.protected, command=command)
            for case in cases
            for command in self._rules.all_checks
        )
        repeated = {}
        for command in self._rules.all_checks:
            # A result may be unstable if it differs from that of the base commit. A check that
            # fails on the base commit is always repeated on it.
            base = self.on(self._base, command).answer
            found = [
                case.protected
                for case in cases
                if self.on(case.protected, command).answer not in (base, "none")
            ]
            # Names of tests may differ in each run, as those with an address do.
            named = {*(self.on(self._base, command).cases or ())}
            lost = any(named - {*(self.on(case.protected, command).cases or ())} for case in cases)
            repeats_base = found or lost or base == "fail"
            repeated[command] = [self._base, *found] if repeats_base else []
        self._evidence.collect(
            Job(commit=commit, command=command, attempt=2)
            for command, commits in repeated.items()
            for commit in commits
        )
        for command, commits in repeated.items():
            if commits and self._differs(self._base, command):
                # protection: unsteady-check-counts-for-no-candidate
                self.unstable.add(command)
                if command in self._rules.must_fix:
                    raise _proves_nothing(command)
            if commits:
                names, again = (
                    {*(self.on(self._base, command, attempt).cases or ())} for attempt in (1, 2)
                )
                self.varying[command] = frozenset(names ^ again)
        for case in cases:
            again = {check for check, commits in repeated.items() if case.protected in commits}
            case.unstable = frozenset(self.unstable)
            case.verdicts = tuple(
                self._verdict(case, check, again) for check in self._rules.all_checks
            )

    def _differs(self, commit: str, command: str) -> bool:
        answers = {self.on(commit, command, attempt).answer for attempt in (1, 2)}
        return {"pass", "fail"} <= answers

    def _verdict(self, case: Case, command: str, again: set[str]) -> CheckVerdict:
        base, ours = self.on(self._base, command), self.on(case.protected, command)
        verdict: Verdict
        differs = command in again and self._differs(case.protected, command)
        if command in self.unstable or differs:
            verdict = "unstable"
        else:
            verdict = _VERDICTS.get((base.answer, ours.answer), "no_verdict")
        broken = [
            # Tests that pass on the base, but fail, are skipped or are missing on the candidate.
            name
            for name, outcome in (base.cases or {}).items()
            if ours.cases is not None
            and outcome == "passed"
            and ours.cases.get(name) != "passed"
            and name not in self.varying.get(command, ())
        ]
        return CheckVerdict(
            command=command,
            must_fix=command in self._rules.must_fix,
            verdict=verdict,
            broken=tuple(broken[:MOST_BROKEN]),
            broken_count=len(broken) or int(verdict == "broke"),
        )

    def on_tree(
        self, tree: Literal["commit", "hidden"], command: str, answer: Answer
    ) -> CheckVerdict:
        """Return the verdict on a check's answer on a candidate's commit or with hidden tests."""
        verdict = _VERDICTS.get((self.on(self._base, command).answer, answer), "no_verdict")
        return CheckVerdict(
            command=command,
            tree=tree,
            must_fix=command in self._rules.must_fix,
            verdict="unstable" if command in self.unstable else verdict,
        )

    def use_frozen(self, cases: Sequence[Case]) -> None:
        """Judge candidates without their new tests if checks pass only on the candidates' commits.

        New files that control tests are never part of the judged commit, so that new tests which
        need such files fail there. The new verdicts are kept only if the candidate then passes.
        """
        chosen = []
        for case in cases:
            # Some checks fail, and all of these pass on the candidate's own commit.
            failing = [verdict for verdict in case.verdicts if not verdict.passed]
            runs = [self.own(case, verdict) for verdict in failing]
            if runs and all(run is not None and run.answer == "pass" for run in runs):
                chosen.append(case)
        if self._rules.tests != "extend" or not chosen:
            return
        before = {case.number: (case.protected, case.verdicts) for case in chosen}
        for case in chosen:
            changes = self._trees.changes_to_restore(case.branch.commit, "frozen")
            case.protected = self._trees.with_changes(case.branch.commit, changes)
        self.compare(chosen)
        for case in chosen:
            if not case.passes:
                case.protected, case.verdicts = before[case.number]

    def doubt(self, cases: Sequence[Case]) -> None:
        """Repeat passing checks without the files by which a candidate may control the tests.

        New test files can change how other tests run, and files such as `Makefile` can leave tests
        out. A check that then fails is no proof of cheating: it may need the files rightly.
        """
        if self._rules.tests == "free":
            return
        suspected = {case.number: [*self._suspicions(case)] for case in cases}
        for attempt in (1, 2):
            self._evidence.collect(
                Job(commit=doubt.commit, command=doubt.check, attempt=attempt)
                for doubts in suspected.values()
                for doubt in doubts
                if attempt == 1 or self.on(doubt.commit, doubt.check).answer == "fail"
            )
        for case in cases:
            case.doubts = tuple(
                doubt
                for doubt in suspected[case.number]
                if self.on(doubt.commit, doubt.check).answer == "fail"
                and self.on(doubt.commit, doubt.check, 2).answer == "fail"
            )

    def _suspicions(self, case: Case) -> Iterator[Doubt]:
        """Yield passing checks to repeat, with a commit without new tests or configuration."""
        commit = case.branch.commit
        frozen = self._trees.with_changes(commit, self._trees.changes_to_restore(commit, "frozen"))
        configured = self._trees.with_base_configuration(case.protected, commit)
        # protection: checks-also-run-without-candidates-new-tests
        # protection: checks-also-run-with-bases-configuration-files
        trees: dict[Literal["frozen", "configuration"], str] = {
            "frozen": frozen, "configuration": configured,
        }  # fmt: skip
        for tree, tree_commit in trees.items():
            if tree_commit != case.protected:
                for verdict in case.verdicts:
                    if verdict.passed:
                        yield Doubt(check=verdict.command, tree=tree, commit=tree_commit)

    def try_own_versions(self, cases: Sequence[Case]) -> None:
        """Run failing checks on the candidates' own commits, with the candidates' own tests."""
        self._evidence.collect(
            Job(commit=case.branch.commit, command=verdict.command)
            for case in cases
            if case.protected != case.branch.commit
            for verdict in case.verdicts
            if not verdict.passed
        )

    def own_verdicts(self, case: Case) -> Iterator[CheckVerdict]:
        """Yield the verdicts of failing checks for the candidate's own commit."""
        for verdict in case.verdicts:
            if (found := self.own(case, verdict)) is not None:
                yield self.on_tree("commit", verdict.command, found.answer)

    def own(self, case: Case, verdict: CheckVerdict) -> CheckRun | None:
        """Return a failing check's result on the candidate's own commit; None if it did not run."""
        if case.protected == case.branch.commit or verdict.passed:
            return None
        return self.on(case.branch.commit, verdict.command)


def _proves_nothing(command: str) -> ConfigError:
    return ConfigError(
        f"`--must-fix` proves nothing: `{command}` does not always fail on the base commit",
        key="must-fix.unproved",
        hint="name a check that fails without the fix, or use `--check`",
    )
