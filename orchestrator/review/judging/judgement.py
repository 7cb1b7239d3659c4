"""The result of judging a run: what `orchestrator judge --json` prints, and later candidates see.

A field with `validation_alias` has another name in judgements that earlier versions recorded.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import AliasChoices, Field

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.judging import Tests
from orchestrator.config.settings.values import Model
from orchestrator.review.judging.check_run import Answer

Verdict = Literal["fixed", "kept", "broke", "still_broken", "unstable", "no_verdict"]
Column = Literal[
    "out", "review", "hidden tests", "must fix", "broken tests", "checks", "lint",
    "coverage", "judge", "same output", "changed lines", "cost", "duration", "number",
    "same change",
]  # fmt: skip
"""The columns by which candidates are ordered; `same change` if two candidates share a place."""
FlagKind = Literal[
    "empty", "tests_weakened", "tests_removed", "new_skips", "nothing_ran", "forged",
    "needs_new_tests", "needs_own_configuration", "unproved", "touches_runner",
    "instrument_changed", "literal_echo", "suppressed", "scope",
]  # fmt: skip
NEED_REVIEW: frozenset[FlagKind] = frozenset(
    {"needs_new_tests", "needs_own_configuration", "unproved", "touches_runner"}
)
"""Findings that do not exclude a candidate, but keep it from being picked automatically."""
Decision = Literal["clear", "undecided", "none"]


class Proof(Model):
    """A check on the files of one commit, as proof of a finding.

    `tree` names the files: those of the base commit (`base`); those of the candidate (`commit`);
    the candidate's with the base commit's tests (`protected`); `protected` without the candidate's
    new tests (`frozen`), with the base commit's configuration files (`configuration`), or with
    changed tests that must fail (`canary`).
    """

    tree: Literal["base", "commit", "protected", "frozen", "configuration", "canary"]
    commit: str
    check: str
    answer: Answer


class Doubt(Model):
    """A check that passes only with new tests or configuration files of a candidate."""

    check: str
    tree: Literal["frozen", "configuration"]
    commit: str
    """Commit without the candidate's versions of the files, on which the check fails."""


class Flag(Model):
    """A sign that a candidate weakened or avoided the tests, such as a removed test."""

    flag: FlagKind = Field(validation_alias=AliasChoices("flag", "kind"))
    out: bool
    """Whether the finding excludes the candidate."""
    message: str
    """The finding in one line, for the user."""
    file: str | None = None
    line: int | None = None
    tests: tuple[str, ...] = ()
    """For `unproved`: tests on which the candidate relies, and which no mutant proves, as
    `file::test`; at most 20.
    """
    proof: tuple[Proof, ...] = ()


class CheckVerdict(Model):
    """The result of a check on a candidate, compared with its result on the base commit."""

    command: str = Field(validation_alias=AliasChoices("command", "check"))
    tree: Literal["commit", "protected", "hidden"] = "protected"
    """Files on which the check ran: the candidate's (`commit`), the candidate's with the base
    commit's tests (`protected`), or `protected` with the hidden files (`hidden`).
    """
    must_fix: bool = False
    verdict: Verdict
    """`fixed` (fails on the base commit, passes on the candidate), `kept` (passes on both), `broke`
    (passes on the base commit only), `still_broken` (fails on both), `unstable` (repeated runs
    differ), or `no_verdict` (the engine failed).
    """
    broken: tuple[str, ...] = ()
    """Tests that pass on the base commit only, according to the JUnit files; at most 20."""
    broken_count: int = 0

    @property
    def passed(self) -> bool:
        """Return whether the check passes on the candidate."""
        return self.verdict in ("fixed", "kept")


class Candidate(Model):
    """The judgement about one worker."""

    run_id: str
    """Id of the worker's run."""
    worker_id: int
    model: str | None = None
    commit: str
    protected: str
    """The commit on which the checks ran: the candidate's, with the base commit's versions of tests
    and of files that control tests.
    """
    place: int | None
    """Place of the candidate: 1 is the best; equal changes share a place. Null if excluded."""
    decided_by: Column | None = None
    """First column in which the candidate beats the next candidate; null for the last candidate,
    and for excluded ones.
    """
    passes: bool
    """Whether no finding excludes the candidate, and all checks and hidden tests pass."""
    out: bool
    """Whether a finding excludes the candidate."""
    flags: tuple[Flag, ...] = ()
    checks: tuple[CheckVerdict, ...] = ()
    """Verdict of each check on each tree; the verdicts on the tree `protected` decide."""
    hidden: Answer | None = None
    """Result of the checks with the hidden files; null without hidden files."""
    lint: int | None = None
    """Number of lines that lint commands print for the candidate and not for the base commit."""
    coverage: float | None = Field(default=None, ge=0, le=1)
    """Part of the candidate's new lines of code that was executed, from 0 to 1; null if unknown."""
    same_output: int | None = None
    """Number of candidates for which the probe prints the same output; null without a probe."""
    wins: int = 0
    """Number of other candidates that lose to this candidate in the judge command's comparisons."""
    lines: int
    """Number of changed lines, without those of tests and generated files."""
    files: int
    """Number of all changed files."""
    cost: float = Field(default=0.0, ge=0)
    cost_known: bool = False
    duration: float = Field(default=0.0, ge=0)

    @property
    def verdicts(self) -> tuple[CheckVerdict, ...]:
        """Return the verdicts of the checks that ran with the base commit's tests."""
        return tuple(verdict for verdict in self.checks if verdict.tree == "protected")

    @property
    def needs_review(self) -> bool:
        """Return whether a person has to look at the candidate before it is merged."""
        return any(flag.flag in NEED_REVIEW for flag in self.flags)


class Judgement(Model):
    """The output of `orchestrator judge --json`."""

    run_id: str
    number: int
    """Number of the judgement: a run can be judged again."""
    base: str
    tests: Tests
    checks: tuple[str, ...]
    must_fix: tuple[str, ...] = ()
    unstable: tuple[str, ...] = ()
    """Checks that are not counted, because repeating them on the base commit changes the result."""
    without_canary: tuple[str, ...] = ()
    """Checks that were not tried with changed tests that must fail: their test runner is not known,
    or does not report such tests as failed on the base commit.
    """
    varying_names: tuple[str, ...] = ()
    """Checks whose JUnit files name other tests in each run on the base commit: only names that two
    runs share are compared.
    """
    judge_problems: tuple[str, ...] = ()
    """Why runs of the judge command gave no answer, such as its exit code and its last line."""
    decision: Decision
    """`clear` (the first candidate is `picked`), `undecided`, or `none` (no candidate passes)."""
    picked: int | None = Field(default=None, validation_alias=AliasChoices("picked", "pick"))
    """Number of the worker that is clearly the best."""
    ranking: tuple[Candidate, ...] = Field(validation_alias=AliasChoices("ranking", "candidates"))
    """The candidates, best first."""

    @property
    def exit_code(self) -> int:
        """Return 0 if one candidate is clearly the best, 1 if none passes, and 2 if undecided."""
        return {"clear": 0, "none": 1, "undecided": 2}[self.decision]


MOST = 8 * 1024
"""Maximum number of characters of the description of failed candidates."""
_CANDIDATES = 5
_NAMES = 10
_SAID = {
    "empty": "it changed nothing",
    "tests_weakened": "it changed tests, and does not pass without these changes",
    "tests_removed": "it removed tests, and does not pass with them",
    "new_skips": "it skips tests",
    "nothing_ran": "tests did not run",
    "forged": "it hides failing tests",
}


def lessons_of(judgement: Judgement) -> str:
    """Describe for later candidates which checks earlier ones failed, except hidden tests.

    The description contains no text that a candidate wrote: a candidate must not be able to
    instruct later ones. It is empty if no candidate failed a visible check.
    """
    found = (
        [*_findings(candidate)]
        for candidate in sorted(
            judgement.ranking, key=lambda candidate: (candidate.run_id, candidate.worker_id)
        )
        if not candidate.passes
    )
    # A candidate that only fails hidden tests is not told about.
    told = [findings for findings in found if findings][:_CANDIDATES]
    rows = [
        f"- attempt {number}: {said}"
        for number, findings in enumerate(told, start=1)
        for said in findings
    ]
    if not rows:
        return ""
    head = "Earlier attempts at this task did not pass these checks:"
    return "\n".join([head, "", *rows])[:MOST]


def _findings(candidate: Candidate) -> Iterator[str]:
    for kind in dict.fromkeys(flag.flag for flag in candidate.flags if flag.out):
        # Hidden tests run only if the public checks report tests that must fail.
        if kind != "forged" or candidate.hidden is None:
            yield _SAID[kind]
    for check in candidate.verdicts:
        if check.verdict in ("broke", "still_broken"):
            names = ", ".join(one_line(name, limit=200) for name in check.broken[:_NAMES])
            tests = f"; tests that passed before: {names}" if names else ""
            yield f"`{one_line(check.command, limit=400)}` fails{tests}"
