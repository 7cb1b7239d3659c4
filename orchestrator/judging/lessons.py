"""Describe for later candidates which checks earlier candidates failed, except hidden tests.

The description contains no text that an earlier candidate wrote: a candidate must not be able to
instruct later candidates.
"""

from collections.abc import Iterator

from orchestrator.judging.judgement import Candidate, Judgement
from orchestrator.text.sanitize import one_line

MOST = 8 * 1024
"""Maximum number of characters of the description."""
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
    """Return the description of failed candidates; empty if none failed a visible check."""
    found = ([*_findings(one)] for one in _in_order(judgement) if not one.passes)
    # A candidate that only fails hidden tests is not told about.
    told = [findings for findings in found if findings][:_CANDIDATES]
    rows = [
        f"- attempt {number}: {said}" for number, one in enumerate(told, start=1) for said in one
    ]
    if not rows:
        return ""
    head = "Earlier attempts at this task did not pass these checks:"
    return "\n".join([head, "", *rows])[:MOST]


def _in_order(judgement: Judgement) -> list[Candidate]:
    return sorted(judgement.ranking, key=lambda one: (one.run_id, one.worker_id))


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
