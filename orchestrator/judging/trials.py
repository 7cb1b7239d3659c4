"""Decide what checks on tests that are mixed with mutants prove about a candidate."""

from collections.abc import Sequence

from orchestrator.judging.cases import Case
from orchestrator.judging.evidence import Evidence
from orchestrator.judging.hidden_tests import HiddenTests
from orchestrator.judging.judge_request import JudgingRules
from orchestrator.judging.judgement import CheckVerdict, Flag, Proof
from orchestrator.judging.mutant_runs import MutantRuns, Trial
from orchestrator.judging.mutants import is_read_by_runner
from orchestrator.judging.trees import Trees
from orchestrator.text.sanitize import one_line


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
        without = self._without_proof(case, passed, runs)
        # protection: candidate-is-not-picked-by-check-that-proves-nothing
        if without is None:
            return []
        message = (
            f"nothing shows that `{one_line(without, limit=80)}` reports failures: no mutant of a "
            "test is known to fail, and no hidden tests prove the change; review it"
        )
        return [Flag(flag="unproved", out=False, message=message)]

    def _without_proof(
        self, case: Case, passed: Sequence[CheckVerdict], runs: MutantRuns
    ) -> str | None:
        """Return a check on which a candidate relies, though nothing shows that it tests anything.

        Checks that pass on the base commit too prove nothing about the candidate, if another check
        does. Hidden tests prove that a candidate passes tests that it does not know; those that run
        in the process of the candidate's code do so only if they have mutants.
        """
        if case.hidden == "pass":
            in_process = (
                verdict.command
                for verdict in passed
                if any(is_read_by_runner(verdict.command, path) for path in self._rules.hidden)
            )
            # protection: hidden-tests-without-mutants-prove-nothing
            return None if runs.tries_hidden else next(in_process, None)
        # protection: candidates-own-tests-prove-nothing
        if self._rules.tests == "free" and case.has_own_tests:
            return passed[0].command
        fixed = [verdict.command for verdict in passed if verdict.verdict == "fixed"]
        without = [command for command in fixed if command not in self.checks_tried]
        if without or any(verdict.command in self.checks_tried for verdict in passed):
            return next(iter(without), None)
        return passed[0].command


def _proof(commit: str, check: str, trial: Trial) -> tuple[Proof, ...]:
    return (
        Proof(tree="protected", commit=commit, check=check, answer="pass"),
        Proof(tree="canary", commit=trial.commit, check=check, answer=trial.run.answer),
    )
