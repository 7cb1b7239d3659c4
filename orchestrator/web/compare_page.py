"""The page that shows two workers of a run side by side."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.judging.judgement import Candidate
from orchestrator.judging.store import latest_judgement
from orchestrator.landing.branches import Branch, read_branches
from orchestrator.record.worker_view import WorkerView
from orchestrator.text.quantities import count
from orchestrator.text.sanitize import one_line
from orchestrator.web.diffs import Diff, FileDiff, diff_of, diff_values, read_diff
from orchestrator.web.formats import UNKNOWN
from orchestrator.web.judgement_page import word_of
from orchestrator.web.rendering import Page
from orchestrator.web.summaries import WorkerSummary
from orchestrator.web.view import View, run_values, summary_of

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
    numbers = _chosen(view)
    pair = tuple(summaries[number] for number in numbers)
    diffs, between, problem = _diffs(view, pair)
    values |= {
        "a": pair[0],
        "b": pair[1],
        "rows": [fact.row for fact in _facts(view, pair)],
        "paths": _paths(diffs)[:_MOST_FILES],
        "problem": problem,
        "choices": _choices(view, summary.workers, numbers) if view.site.is_static else (),
    } | diff_values(between, view.query)
    return view.page("compare.html", values)


def exported_pairs(view: View) -> Sequence[Pair]:
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
    pages = {frozenset(pair): address_of(view, pair) for pair in exported_pairs(view)}
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


def _chosen(view: View) -> Pair:
    order = _order(view)
    known = sorted(order)
    asked = [_number(view.query.get(name, ""), known) for name in ("a", "b")]
    first = asked[0] or next(number for number in order if number != asked[1])
    second = asked[1] or next(number for number in order if number != first)
    return first, second


def _number(text: str, known: list[int]) -> int | None:
    return next((number for number in known if str(number) == text), None)


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
        diffs = tuple(_changes(view, found.get(worker.number)) for worker in pair)
        if len(found) < len({worker.number for worker in pair}):
            return (
                diffs,
                _NOTHING,
                "both workers must have committed something",
            )
        tips = [found[worker.number].commit for worker in pair]
        return diffs, read_diff(view.repository, *tips), ""
    except OrchestratorError as error:
        return (_NOTHING, _NOTHING), _NOTHING, one_line(str(error), limit=500)


def _changes(view: View, branch: Branch | None) -> Diff:
    return _NOTHING if branch is None else diff_of(view.repository, branch)


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
    judged = _judged(view)
    records = [view.snapshot.by_number.get(worker.number) for worker in pair]
    facts = [
        _Fact("State", a.badge.word, b.badge.word),
        _Fact("Reason", a.reason, b.reason),
        _Fact("Task", a.task, b.task),
        _Fact("Model", a.model, b.model),
        _Fact("Judgement", judged.get(a.number, ""), judged.get(b.number, "")),
        _Fact("Checks", a.checks, b.checks),
        _Fact("Time", a.elapsed, b.elapsed),
        _Fact("Cost", a.cost, b.cost),
        _Fact("Tokens", *(_tokens(record) for record in records)),
        _Fact("Changes", _sizes(a), _sizes(b)),
    ]
    return [
        _Fact(fact.name, fact.a or UNKNOWN, fact.b or UNKNOWN) for fact in facts if fact.a or fact.b
    ]


def _tokens(worker: WorkerView | None) -> str:
    tokens = worker.result.tokens if worker and worker.result else None
    return "" if tokens is None else f"{tokens:,}"


def _sizes(summary: WorkerSummary) -> str:
    if summary.files is None:
        return ""
    if not summary.files:
        return "none"
    files = count(summary.files, "file")
    return f"{files}, +{summary.insertions} \N{MINUS SIGN}{summary.deletions}"


def _judged(view: View) -> Mapping[int, str]:
    try:
        judgement = latest_judgement(view.repository.state_dir, view.snapshot.run_id)
    except ConfigError:
        return {}
    own = [candidate for candidate in judgement.ranking if candidate.run_id == view.snapshot.run_id]
    return {candidate.worker_id: _place(candidate) for candidate in own}


def _place(candidate: Candidate) -> str:
    place = "" if candidate.place is None else f"place {candidate.place}, "
    return f"{place}{word_of(candidate)}"


def _paths(diffs: tuple[Diff, ...]) -> list[dict[str, object]]:
    """Return the files that two workers changed; files that both changed come first."""
    a, b = ({file.path: file for file in diff.files} for diff in diffs)
    rows = [_path(path, a.get(path), b.get(path)) for path in sorted({*a, *b})]
    return sorted(rows, key=lambda row: not row["word"])


def _path(path: str, a: FileDiff | None, b: FileDiff | None) -> dict[str, object]:
    if a is None or b is None:
        tone, word = "none", ""
    elif (a.change, a.lines) == (b.change, b.lines):
        tone, word = "both", "same"
    else:
        tone, word = "differs", "different"
    return {"path": path, "a": a, "b": b, "tone": tone, "word": word}
