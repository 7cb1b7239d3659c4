"""Decide what checks on tests that are mixed with mutants prove about a candidate."""

from collections.abc import Iterator, Sequence

from orchestrator.base.text.sanitize import one_line
from orchestrator.review.judging.cases import Case
from orchestrator.review.judging.evidence import Evidence
from orchestrator.review.judging.hidden_tests import HiddenTests
from orchestrator.review.judging.judge_request import JudgingRules
from orchestrator.review.judging.judgement import CheckVerdict, Flag, Proof
from orchestrator.review.judging.mutant_runs import MutantRuns, Trial
from orchestrator.review.judging.mutants import is_read_by_runner
from orchestrator.review.judging.trees import Trees

MOST_LISTED = 20
"""Maximum number of tests that are listed for one finding."""
_SHOWN = 3


class Trials:
    """Tries the passing checks of candidates with mutants of the visible and the hidden tests."""

    def __init__(
        self, rules: JudgingRules, trees: Trees, evidence: Evidence, hidden: HiddenTests
    ) -> None:
        """Store the arguments. No check runs yet."""
        self._rules = rules
        self._trees = trees
        self._evidence = evidence
        self._hidden = hidden
        self.checks_tried: frozenset[str] = frozenset()
        """Checks that report mutants as failed on the base commit."""

    def hold(self, cases: Sequence[Case]) -> None:
        """Set the findings about candidates that pass."""
        if not cases:
            return
        rules = self._rules
        # protection: hidden-tests-have-mutants-too
        runs = MutantRuns(self._trees, self._evidence, rules.all_checks, rules.hidden)
        runs.calibrate(self._hidden.add_to(self._trees.base))
        runs.collect(self._hidden.add_to(case.protected) for case in cases)
        self.checks_tried = runs.checks_tried
        for case in cases:
            commit = self._hidden.add_to(case.protected)
            case.trials = (*self._findings(runs, case, commit),)
            # The engine may have failed, but code under test can also prevent a result.
            # protection: check-without-result-with-mutants-does-not-pass
            case.verdicts = tuple(
                verdict.model_copy(update={"verdict": "no_verdict"})
                if runs.has_no_result(commit, verdict.command)
                else verdict
                for verdict in case.verdicts
            )

    def _findings(self, runs: MutantRuns, case: Case, commit: str) -> list[Flag]:
        """Return at most one finding: that a check was forged, or that nothing is proved."""
        passed = [verdict for verdict in case.verdicts if verdict.passed]
        for verdict in passed:
            if (trial := runs.find_forgery(commit, verdict.command)) is not None:
                said = "passes with" if trial.run.answer == "pass" else "does not report"
                message = f"the check cannot be trusted: it {said} tests that must fail"
                proof = _proof(commit, verdict.command, trial)
                # protection: candidate-that-hides-failing-tests-is-out
                return [Flag(flag="forged", out=True, message=message, proof=proof)]
        for verdict in passed:
            if (trial := runs.find_contradiction(commit, verdict.command)) is not None:
                message = "the check does not always report tests that must fail: review the change"
                if trial.wrong and not trial.hidden:
                    message = (
                        "the check passes, but some of its tests fail when others are changed: "
                        "review it"
                    )
                proof = _proof(commit, verdict.command, trial)
                return [Flag(flag="unproved", out=False, message=message, proof=proof)]
        return [*self._unproved(case, passed, runs, commit)]

    def _unproved(
        self, case: Case, passed: Sequence[CheckVerdict], runs: MutantRuns, commit: str
    ) -> Iterator[Flag]:
        """Yield a finding if nothing proves a check, or a test, on which the candidate relies.

        A check that passes on the base commit too proves nothing about the candidate. One that
        fails there proves as much as the tests that fail there: each of them needs a mutant that
        fails on the candidate's commit. Hidden tests are tests that the candidate does not know;
        those that run in the process of its code need mutants, too.
        """
        fixed = [verdict.command for verdict in passed if verdict.verdict == "fixed"]
        tried = [command for command in fixed if command in self.checks_tried]
        with_own_tests = self._rules.tests == "free" and case.has_own_tests
        if case.hidden == "pass":
            in_process = [
                verdict.command
                for verdict in passed
                if any(is_read_by_runner(verdict.command, path) for path in self._rules.hidden)
            ]
            # protection: hidden-tests-without-mutants-prove-nothing
            if in_process and not runs.tries_hidden:
                yield _without_mutants(in_process[0])
                return
        # protection: candidates-own-tests-prove-nothing
        elif with_own_tests:
            yield _without_mutants(passed[0].command)
            return
        else:
            without = [command for command in fixed if command not in tried]
            if not without and not any(item.command in self.checks_tried for item in passed):
                without = [verdict.command for verdict in passed]
            # protection: candidate-is-not-picked-by-check-that-proves-nothing
            if without:
                yield _without_mutants(without[0])
                return
        for command in tried:
            only_hidden = with_own_tests and case.hidden == "pass"
            tests = runs.unproved(commit, command, only_hidden=only_hidden)
            said = one_line(command, limit=80)
            if tests is None and not only_hidden and not (case.hidden and runs.tries_hidden):
                message = (
                    f"`{said}` does not name the tests that fail on the base: nothing shows what "
                    "the candidate fixed; review it"
                )
                yield Flag(flag="unproved", out=False, message=message)
                return
            # protection: nothing-rests-on-test-without-mutant
            if tests:
                named = ", ".join(one_line(test) for test in tests[:_SHOWN])
                more = f" and {len(tests) - _SHOWN} more" if len(tests) > _SHOWN else ""
                message = (
                    f"no mutant proves {named}{more}, which the candidate fixed by `{said}`: "
                    "review it"
                )
                yield Flag(
                    flag="unproved",
                    out=False,
                    message=message,
                    file=tests[0].partition("::")[0],
                    tests=tuple(one_line(test) for test in tests[:MOST_LISTED]),
                )
                return


def _without_mutants(check: str) -> Flag:
    message = (
        f"nothing shows that `{one_line(check, limit=80)}` reports failures: no mutant of a test "
        "is known to fail, and no hidden tests prove the change; review it"
    )
    return Flag(flag="unproved", out=False, message=message)


def _proof(commit: str, check: str, trial: Trial) -> tuple[Proof, ...]:
    return (
        Proof(tree="protected", commit=commit, check=check, answer="pass"),
        Proof(tree="canary", commit=trial.commit, check=check, answer=trial.run.answer),
    )
