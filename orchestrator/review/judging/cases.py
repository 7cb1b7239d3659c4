"""What is found about each candidate, and its values in the ranking."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.base.results import WorkerResult
from orchestrator.review.judging.changes import Change
from orchestrator.review.judging.check_run import Answer
from orchestrator.review.judging.judgement import (
    NEED_REVIEW,
    Candidate,
    CheckVerdict,
    Doubt,
    Flag,
    Verdict,
)
from orchestrator.review.judging.ranking import Ranked, Score
from orchestrator.review.judging.tripwires import Touch
from orchestrator.review.landing.branches import Branch

_DOUBT = 0.5
"""Value in a ranking column for a result that proves nothing: between passed (0) and failed (1)."""
_VALUES: Mapping[Verdict, float] = {"unstable": _DOUBT, "no_verdict": _DOUBT, "fixed": 0, "kept": 0}
_OF_HIDDEN: Mapping[Answer | None, float] = {None: 0.0, "pass": 0.0, "none": _DOUBT, "fail": 1.0}


@dataclass(kw_only=True)
class Case:
    """A candidate, and the findings about it."""

    run_id: str
    branch: Branch
    change: Change
    paths: tuple[str, ...]
    """Patterns of the files that the task allows to change; empty if any file may be changed."""
    protected: str
    has_new_control: bool
    touches: Sequence[Touch] = ()
    """New lines of the product that touch the test runner."""
    has_own_tests: bool = False
    """Whether tests, or files that control tests, differ from the base commit's in `protected`."""
    verdicts: tuple[CheckVerdict, ...] = ()
    """Results of the checks on the candidate's files with the base commit's tests."""
    unstable: frozenset[str] = frozenset()
    """Checks that are not counted, because their results on the base commit differ."""
    others: tuple[CheckVerdict, ...] = ()
    """Results of the checks on the candidate's own files, and with the hidden files."""
    flags: tuple[Flag, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    trials: tuple[Flag, ...] = ()
    """Findings of the checks on tests that are mixed with mutants."""
    hidden: Answer | None = None
    lint: int | None = None
    coverage: float | None = None
    """Part of the candidate's new lines of code that was executed, from 0 to 1; None if unknown."""
    cluster: str | None = None
    wins: int = 0
    result: WorkerResult | None = None
    """The worker's result as its run recorded it; None if the record is gone."""

    @property
    def number(self) -> int:
        """Return the worker's number."""
        return self.branch.worker_id

    @property
    def is_empty(self) -> bool:
        """Return whether the candidate changed nothing."""
        return not self.change.files

    @property
    def is_out(self) -> bool:
        """Return whether a finding excludes the candidate."""
        return any(flag.out for flag in self.flags)

    @property
    def needs_review(self) -> bool:
        """Return whether a finding keeps the candidate from being picked automatically."""
        return any(flag.flag in NEED_REVIEW for flag in self.flags)

    @property
    def passes(self) -> bool:
        """Return whether a candidate that is not out passes counted checks and hidden tests.

        A check that is stable on the base commit counts, even if the candidate's results differ.
        """
        counted = [verdict for verdict in self.verdicts if verdict.command not in self.unstable]
        sure = bool(counted) and all(verdict.passed for verdict in counted)
        # protection: hidden-tests-count
        return sure and not self.is_out and self.hidden in (None, "pass")


def scores_of(cases: Sequence[Case]) -> list[Score]:
    """Return, for each candidate, the values by which candidates are ranked."""
    sizes, scores = _sizes(cases), []
    for case in cases:
        must = [verdict for verdict in case.verdicts if verdict.must_fix]
        others = [verdict for verdict in case.verdicts if not verdict.must_fix]
        broken = sum(verdict.broken_count for verdict in case.verdicts)
        is_doubtful = any(
            flag.flag in NEED_REVIEW and (flag.proof or flag.flag == "touches_runner")
            for flag in case.flags
        )
        same_output = 0 if case.cluster is None else sizes[case.cluster]
        score = Score(
            worker_id=case.number,
            passes=case.passes,
            needs_review=case.needs_review,
            columns=(
                ("out", float(case.is_out)),
                ("review", float(is_doubtful)),
                ("hidden tests", _OF_HIDDEN[case.hidden]),
                ("must fix", _sum_of_values(must)),
                ("broken tests", float(broken)),
                ("checks", _sum_of_values(others)),
                ("lint", float(case.lint or 0)),
                ("coverage", -round(case.coverage or 0.0, 4)),
                ("judge", float(-case.wins)),
                ("same output", float(-same_output)),
                ("changed lines", float(case.change.lines)),
                ("cost", case.result.cost if case.result else 0.0),
                ("duration", case.result.duration if case.result else 0.0),
            ),
            change=case.change.form or None,
            cluster=case.cluster,
        )
        scores.append(score)
    return scores


def candidates_of(cases: Sequence[Case], ranked: Sequence[Ranked]) -> tuple[Candidate, ...]:
    """Return the ranked candidates with all findings about them."""
    by_number, sizes = {case.number: case for case in cases}, _sizes(cases)
    candidates = []
    for place in ranked:
        case = by_number[place.score.worker_id]
        result = case.result
        candidate = Candidate(
            run_id=case.run_id,
            worker_id=case.number,
            model=result.model if result else None,
            commit=case.branch.commit,
            protected=case.protected,
            place=place.place,
            decided_by=place.decided_by,
            passes=case.passes,
            out=case.is_out,
            flags=case.flags,
            checks=(*case.verdicts, *case.others),
            hidden=case.hidden,
            lint=case.lint,
            coverage=case.coverage,
            same_output=None if case.cluster is None else sizes[case.cluster],
            wins=case.wins,
            lines=case.change.lines,
            files=case.change.files,
            cost=result.cost if result else 0.0,
            cost_known=bool(result and result.cost_known),
            duration=result.duration if result else 0.0,
        )
        candidates.append(candidate)
    return tuple(candidates)


def _sizes(cases: Sequence[Case]) -> Counter[str]:
    return Counter(case.cluster for case in cases if case.cluster is not None)


def _sum_of_values(verdicts: Sequence[CheckVerdict]) -> float:
    return float(sum(_VALUES.get(verdict.verdict, 1.0) for verdict in verdicts))
