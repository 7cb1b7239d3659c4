"""Compare candidates by a judge command: each pair twice, in both orders.

The command runs in a container on the base commit, with the changes of both candidates as files.
The changes are untrusted: an answer counts only if it has the expected form, and if the same
candidate wins when the order of the two candidates is swapped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from json import dumps, loads
from typing import Literal

from orchestrator.git.changes import patch
from orchestrator.judging.evidence import Evidence, Job
from orchestrator.judging.trees import Trees
from orchestrator.text.sanitize import lines
from orchestrator.text.split_lines import split_lines

MOST_CANDIDATES = 4
"""Maximum number of candidates that are compared; four need twelve runs of the command."""
FOLDER = ".judge"
_MOST_DIFF = 256 * 1024
_MOST_TASK = 16 * 1024
_CUT = "\n[cut: the change is longer]\n"
Winner = Literal["A", "B", "tie"]


@dataclass(frozen=True)
class Entrant:
    """A candidate that is compared with others."""

    commit: str
    results: object
    """Results of the candidate's checks, which the judge command receives as JSON."""


def hold_tournament(
    trees: Trees, evidence: Evidence, command: str, task: str, entrants: Mapping[int, Entrant]
) -> dict[int, int]:
    """Return for each candidate the number of candidates that it beat in both orders.

    Args:
        trees: Creates the commits with the files of a comparison.
        evidence: Runs the command.
        command: The judge command.
        task: The task of the candidates.
        entrants: The candidates, by the numbers of their workers.
    """
    numbers = sorted(entrants)[:MOST_CANDIDATES]
    diffs = {number: _diff(trees, entrants[number].commit) for number in numbers}
    jobs = {}
    for a, b in permutations(numbers, 2):
        results = {"A": entrants[a].results, "B": entrants[b].results}
        files = {
            f"{FOLDER}/task.txt": lines(task[:_MOST_TASK]).encode(),
            f"{FOLDER}/A.diff": diffs[a],
            f"{FOLDER}/B.diff": diffs[b],
            f"{FOLDER}/checks.json": dumps(results).encode(),
        }
        commit = trees.with_files(trees.base, files)
        jobs[a, b] = Job(commit=commit, command=command, keeps_output=True)
    evidence.collect(jobs.values())
    said = {pair: winner_of(evidence.of(job).output) for pair, job in jobs.items()}
    wins = dict.fromkeys(entrants, 0)
    for a, b in permutations(numbers, 2):
        # protection: comparison-counts-only-if-both-orders-agree
        if said[a, b] == "A" and said[b, a] == "B":
            wins[a] += 1
    return wins


def winner_of(output: str) -> Winner | None:
    """Return the winner (`A`, `B` or `tie`) that the last line names; None for any other line."""
    rows: Sequence[str] = split_lines(output.strip())
    try:
        # protection: only-last-line-of-judge-counts
        answer = loads(rows[-1]) if rows else None
    except (ValueError, RecursionError):
        return None
    winner = answer.get("winner") if isinstance(answer, dict) else None
    return winner if winner in ("A", "B", "tie") else None


def _diff(trees: Trees, commit: str) -> bytes:
    data = patch(trees.repository, base=trees.base, tip=commit, limit=_MOST_DIFF + 1)
    text = lines(data[:_MOST_DIFF].decode("utf-8", "replace"))
    return (text + (_CUT if len(data) > _MOST_DIFF else "")).encode()
