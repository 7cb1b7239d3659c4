"""Compare candidates by a judge command: each pair twice, in both orders.

The command runs in a container on the base commit, with the changes of both candidates as files.
The changes are untrusted: an answer counts only if it has the expected form, and if the same
candidate wins when the order of the two candidates is swapped.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from json import JSONDecoder, dumps
from typing import Literal

from orchestrator.base.text.sanitize import lines, one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.commits.changes import patch
from orchestrator.review.judging.check_run import CheckRun
from orchestrator.review.judging.evidence import Evidence, Job
from orchestrator.review.judging.trees import Trees

MOST_CANDIDATES = 4
"""Maximum number of candidates that are compared; four need twelve runs of the command."""
FOLDER = ".judge"
_MOST_DIFF = 256 * 1024
_MOST_TASK = 16 * 1024
_LONGEST = 200
"""Maximum number of characters of the judge's last line that are shown."""
_LONGEST_ANSWER = 16 * 1024
_MOST_OBJECTS = 200
_DEEPEST = 2
_OBJECT = re.compile(r"^[ \t]*(?![-+>|#]|<[ \t])[^\n{]*\{", re.MULTILINE)
"""Begin of an object; not in a line of a patch, or of a quotation."""
_TEXTS = ("result", "response", "output", "answer", "content", "text", "message")
"""Keys under which programs that ask a language model print its answer."""
_WRAPPED = re.compile(r"(?:`{3,}|~{3,}|[`*_]+|</?[A-Za-z]\w*>)[ \t\r\n]*\Z")
"""What may follow the answer: the end of a code fence, of emphasis, or a closing tag."""
_DECODER = JSONDecoder()
_CUT = "\n[cut: the change is longer]\n"
Winner = Literal["A", "B", "tie"]


@dataclass(frozen=True)
class Entrant:
    """A candidate that is compared with others."""

    commit: str
    results: object
    """Results of the candidate's checks, which the judge command receives as JSON."""


@dataclass(frozen=True)
class Results:
    """What the judge command answered about all pairs."""

    wins: Mapping[int, int]
    """For each candidate, the number of candidates that it beat in both orders."""
    unusable: tuple[str, ...]
    """Why runs of the command gave no answer, each reason once."""


def hold_tournament(
    trees: Trees, evidence: Evidence, command: str, task: str, entrants: Mapping[int, Entrant]
) -> Results:
    """Compare candidates with each other, each pair in both orders.

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
    runs = {pair: evidence.of(job) for pair, job in jobs.items()}
    said = {pair: _answer(run) for pair, run in runs.items()}
    wins = dict.fromkeys(entrants, 0)
    for a, b in permutations(numbers, 2):
        # protection: comparison-counts-only-if-both-orders-agree
        if said[a, b] == "A" and said[b, a] == "B":
            wins[a] += 1
    unusable = (_problem(run) for pair, run in runs.items() if said[pair] is None)
    return Results(wins, tuple(dict.fromkeys(unusable)))


def _answer(run: CheckRun) -> Winner | None:
    # protection: judge-that-fails-has-no-answer
    return winner_of(run.output) if run.answer == "pass" else None


def _problem(run: CheckRun) -> str:
    rows = split_lines(run.output.strip())
    last = f"its last line is: {one_line(rows[-1], limit=_LONGEST)}" if rows else "no output"
    if run.answer == "none":
        return f"the engine gave no result ({last})"
    code = "" if run.exit_code is None else f" with code {run.exit_code}"
    ends = f"ended{code}" if run.answer == "fail" else "gave no answer in the expected form"
    return f"it {ends} ({last})"


def winner_of(output: str) -> Winner | None:
    """Return the winner (`A`, `B` or `tie`) that the last JSON object names; None without one.

    The object ends the output. Programs that ask a language model may wrap it: in a code fence, in
    emphasis, over several lines, after words, or as a text in an object of their own.
    """
    return _winner_in(output, _DEEPEST)


def _winner_in(output: str, depth: int) -> Winner | None:
    text = output[-_LONGEST_ANSWER:].rstrip()
    while (shorter := _WRAPPED.sub("", text).rstrip()) != text:
        text = shorter
    for begin in [*_OBJECT.finditer(text)][-_MOST_OBJECTS:]:  # the outermost that ends the text
        try:
            answer, end = _DECODER.raw_decode(text, begin.end() - 1)
        except (ValueError, RecursionError):
            continue
        # protection: only-last-object-of-judge-counts
        if end < len(text):
            continue
        winner = answer.get("winner")
        if winner is None and depth:
            said = next((answer[key] for key in _TEXTS if isinstance(answer.get(key), str)), "")
            return _winner_in(said, depth - 1)
        return winner if winner in ("A", "B", "tie") else None
    return None


def _diff(trees: Trees, commit: str) -> bytes:
    data = patch(trees.repository, base=trees.base, tip=commit, limit=_MOST_DIFF + 1)
    text = lines(data[:_MOST_DIFF].decode("utf-8", "replace"))
    return (text + (_CUT if len(data) > _MOST_DIFF else "")).encode()
