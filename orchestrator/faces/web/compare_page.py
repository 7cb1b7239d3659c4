"""The pages that compare candidates: the judgement of a run, and two of its workers."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.text.quantities import count
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.web.diffs import Diff, diff_of, diff_values, read_diff
from orchestrator.faces.web.rendering import UNKNOWN, Page, dollars
from orchestrator.faces.web.summaries import WorkerSummary
from orchestrator.faces.web.view import View, run_values, summary_of
from orchestrator.review.judging.judgement import Candidate, Judgement
from orchestrator.review.judging.store import latest_judgement
from orchestrator.review.landing.branches import Branch, read_branches

_MOST = 200
"""Maximum number of candidates that the page lists."""
_COLUMNS = {
    "out": "the next is excluded",
    "review": "the next needs a review",
    "same output": "more have the same output",
    "number": "only its number",
    "same change": "the next has the same change",
}
"""Words for the criteria that decide between two candidates, if the criterion's name is unclear."""
_DECISIONS = {
    "clear": ("success", "is the best"),
    "undecided": ("warning", "No worker is clearly the best: "),
    "none": ("danger", "No worker passes all checks"),
}


def judgement_page(view: View) -> Page | None:
    """Return the page with the latest judgement of a run; None if the run was not judged."""
    try:
        judgement = latest_judgement(view.repository.state_dir, view.snapshot.run_id)
    except ConfigError:
        return None

    tone, said = _DECISIONS[judgement.decision]
    if judgement.decision == "undecided":
        said += _doubt(judgement)
    elif judgement.picked is not None:
        said = f"Worker {judgement.picked} {said}"
    rules = [f"tests: {judgement.tests}", *(f"check: {check}" for check in judgement.checks)]
    rules += [f"must fail on the base: {check}" for check in judgement.must_fix]
    rules += [
        f"not tried with tests that must fail: {command}" for command in judgement.without_canary
    ]
    rules += [f"not counted, as results differ: {check}" for check in judgement.unstable]
    rules += [f"names of tests differ in each run: {check}" for check in judgement.varying_names]
    rules += [f"judge command: {problem}" for problem in judgement.judge_problems]
    values = run_values(view, tab="judgement") | {
        "tone": tone,
        "said": said,
        "pick": judgement.picked,
        "number": judgement.number,
        "rules": [one_line(rule, limit=200) for rule in rules],
        "rows": [candidate_row(candidate, view) for candidate in judgement.ranking[:_MOST]],
    }
    return view.page("judgement.html", values)


def _doubt(judgement: Judgement) -> str:
    """Return why the first candidate is not picked automatically."""
    first = next(candidate for candidate in judgement.ranking if candidate.passes)
    if first.needs_review:
        return f"a person has to review worker {first.worker_id} first"
    column = _COLUMNS.get(first.decided_by or "", first.decided_by)
    if column is None:
        return f"nothing proves that worker {first.worker_id} is right"
    return f"worker {first.worker_id} is ahead of the next only by: {column}"


def word_of(candidate: Candidate) -> str:
    """Return the judgement of a candidate in words: `passes`, `does not pass` or `excluded`."""
    if candidate.passes:
        return "passes"
    return "excluded" if candidate.out else "does not pass"


def candidate_row(candidate: Candidate, view: View) -> dict[str, object]:
    """Return the texts of a candidate's row in a table."""
    own = candidate.run_id == view.snapshot.run_id
    worker = view.snapshot.by_number.get(candidate.worker_id) if own else None
    title = f"of run {one_line(candidate.run_id)}"
    if worker is not None:
        title = one_line(worker.spec.name or worker.spec.task, limit=100)
    passed = sum(check.passed for check in candidate.verdicts)
    return {
        "place": "-" if candidate.place is None else candidate.place,
        "number": candidate.worker_id,
        "run": candidate.run_id,
        "title": title,
        "model": "" if candidate.model in (None, "default") else one_line(candidate.model or ""),
        "is_out": candidate.out,
        "tone": "success" if candidate.passes else "danger",
        "word": word_of(candidate),
        "checks": f"{passed}/{len(candidate.verdicts)}",
        "lines": count(candidate.lines, "line"),
        "cost": dollars(candidate.cost if candidate.cost_known else None),
        "why": _COLUMNS.get(candidate.decided_by or "", candidate.decided_by or ""),
        "flags": [one_line(flag.message, limit=200) for flag in candidate.flags],
    }


_MOST_FILES = 500
"""Maximum number of changed files that the page lists."""
_NOTHING = Diff((), is_whole=True)
_MOST_EACH = 8
"""Maximum number of workers of a run for which an export has a page for every pair."""
Pair = tuple[int, int]


def compare_page(view: View) -> Page | None:
    """Return the page that compares two workers; None if the run has only one worker.

    The query parameters `a` and `b` are the workers' numbers. Default: the first two workers that
    have ended, else the first two workers.
    """
    if len(view.snapshot.workers) < 2:
        return None
    summary = summary_of(view)
    values = run_values(view, tab="compare", summary=summary)
    summaries = {shown.number: shown for shown in summary.workers}
    order = _order(view)
    known = {str(number): number for number in order}
    asked = [known.get(view.query.get(name, "")) for name in ("a", "b")]
    first = asked[0] or next(number for number in order if number != asked[1])
    second = asked[1] or next(number for number in order if number != first)
    numbers = first, second
    pair = tuple(summaries[number] for number in numbers)
    diffs, between, problem = _diffs(view, pair)
    a, b = ({file.path: file for file in diff.files} for diff in diffs)
    paths: list[dict[str, object]] = []
    for path in sorted({*a, *b}):
        in_a, in_b, tone, word = a.get(path), b.get(path), "none", ""
        if in_a and in_b:
            is_same = (in_a.change, in_a.lines) == (in_b.change, in_b.lines)
            tone, word = ("both", "same") if is_same else ("differs", "different")
        paths.append({"path": path, "a": in_a, "b": in_b, "tone": tone, "word": word})
    values |= {
        "a": pair[0],
        "b": pair[1],
        "rows": [fact.row for fact in _facts(view, pair)],
        # Files that both workers changed come first.
        "paths": sorted(paths, key=lambda row: not row["word"])[:_MOST_FILES],
        "problem": problem,
        "choices": _choices(view, summary.workers, numbers) if view.site.is_static else (),
    } | diff_values(between, view.query)
    return view.page("compare.html", values)


def pairs_to_export(view: View) -> Sequence[Pair]:
    """Return the pairs of workers that an export compares.

    These are all pairs; for many workers, only the pairs that contain the first worker.
    """
    order = _order(view)
    if len(order) > _MOST_EACH:
        return [(order[0], other) for other in order[1:]]
    return list(combinations(order, 2))


def address_of(view: View, pair: Pair) -> str:
    """Return the address of an export's page that compares two workers."""
    first, second = pair
    return view.site.href(view.run.repository, view.snapshot.run_id, "compare", f"{first}-{second}")


def _choices(view: View, workers: Sequence[WorkerSummary], shown: Pair) -> list[object]:
    """Return the links of an exported page by which a user replaces one of the two workers.

    A link is empty if its worker is shown already, or if the export has no page for the pair.
    """
    pages = {frozenset(pair): address_of(view, pair) for pair in pairs_to_export(view)}
    return [
        {
            "kept": kept,
            "links": [
                (worker, pages.get(frozenset((worker.number, kept)), ""), worker.number == replaced)
                for worker in workers
                if worker.number != kept
            ],
        }
        for replaced, kept in (shown, shown[::-1])
    ]


def _order(view: View) -> list[int]:
    known = [worker.spec.worker_id for worker in view.snapshot.workers]
    ended = [worker.spec.worker_id for worker in view.snapshot.workers if worker.result]
    return list(dict.fromkeys([*ended, *known]))


def _diffs(view: View, pair: tuple[WorkerSummary, ...]) -> tuple[tuple[Diff, ...], Diff, str]:
    """Return each worker's changes, the diff of their commits, and why that diff is missing."""
    numbers = [worker.number for worker in pair if worker.is_over]
    try:
        found = dict[int, Branch]()
        for number in numbers:
            # Git reads the commits of these two workers only: a run may have a thousand.
            with suppress(ConfigError):
                read = read_branches(view.repository, view.snapshot.run_id, (number,))
                found[number] = read.branches[0]
        branches = [found.get(worker.number) for worker in pair]
        diffs = tuple(
            diff_of(view.repository, branch) if branch else _NOTHING for branch in branches
        )
        if len(found) < len({worker.number for worker in pair}):
            return diffs, _NOTHING, "both workers must have committed something"
        tips = [found[worker.number].commit for worker in pair]
        return diffs, read_diff(view.repository, *tips), ""
    except OrchestratorError as error:
        return (_NOTHING, _NOTHING), _NOTHING, one_line(str(error), limit=500)


@dataclass(frozen=True)
class _Fact:
    """A property of two compared workers, such as the cost, with both values."""

    name: str
    a: str
    b: str

    @property
    def row(self) -> dict[str, object]:
        return {"name": self.name, "a": self.a, "b": self.b, "differs": self.a != self.b}


def _facts(view: View, pair: tuple[WorkerSummary, ...]) -> list[_Fact]:
    a, b = pair
    places = _places(view)
    results = [view.snapshot.by_number[worker.number].result for worker in pair]
    tokens = [result.tokens if result else None for result in results]
    facts = [
        _Fact("State", a.badge.word, b.badge.word),
        _Fact("Reason", a.reason, b.reason),
        _Fact("Task", a.task, b.task),
        _Fact("Model", a.model, b.model),
        _Fact("Judgement", places.get(a.number, ""), places.get(b.number, "")),
        _Fact("Checks", a.checks, b.checks),
        _Fact("Time", a.elapsed, b.elapsed),
        _Fact("Cost", a.cost, b.cost),
        _Fact("Tokens", *("" if number is None else f"{number:,}" for number in tokens)),
        _Fact("Changes", _sizes(a), _sizes(b)),
    ]
    return [
        _Fact(fact.name, fact.a or UNKNOWN, fact.b or UNKNOWN) for fact in facts if fact.a or fact.b
    ]


def _sizes(summary: WorkerSummary) -> str:
    if summary.files is None:
        return ""
    if not summary.files:
        return "none"
    files = count(summary.files, "file")
    return f"{files}, +{summary.insertions} \N{MINUS SIGN}{summary.deletions}"


def _places(view: View) -> Mapping[int, str]:
    """Return what the latest judgement says of each worker: `place 1, passes`."""
    try:
        judgement = latest_judgement(view.repository.state_dir, view.snapshot.run_id)
    except ConfigError:
        return {}
    found = {}
    for candidate in judgement.ranking:
        if candidate.run_id == view.snapshot.run_id:
            place = "" if candidate.place is None else f"place {candidate.place}, "
            found[candidate.worker_id] = f"{place}{word_of(candidate)}"
    return found
