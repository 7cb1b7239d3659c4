"""Show a judgement as a table with the reasons for its order, or two candidates side by side."""

from collections.abc import Iterator

from orchestrator.base.text.quantities import UNKNOWN, duration, money
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.cli.output.formats import table, terminal_width
from orchestrator.review.judging.judgement import Candidate, Judgement
from orchestrator.review.judging.pair import Pair
from orchestrator.runs.reports.decisions import HEADING, candidate_row, decision, flag_lines


def judgement_text(judgement: Judgement) -> str:
    """Return the table of candidates, the findings about each candidate, and the decision."""
    heading = tuple(name.upper() for name in HEADING)
    rows = [heading, *map(candidate_row, judgement.ranking)]
    found = [*flag_lines(judgement)]
    parts = [table(rows, width=terminal_width(), shrink=2), *(["", *found] if found else []), ""]
    return "\n".join([*parts, decision(judgement)])


_NONE = "-"
_MOST_FILES = 20


def pair_text(pair: Pair) -> str:
    """Return a table of what was found about two candidates, and how their files differ."""
    first, other = pair.ranking
    rows = [("", _name(first), _name(other)), *_rows(first, other)]
    by: str = pair.decided_by or "number only, because both are excluded"
    by = "same change or output" if by == "same change" else by
    said = f"worker {pair.better} is before worker {other.worker_id} by: {by}"
    lines = [table(rows, width=terminal_width(), shrink=0), "", said]
    if pair.files is None:
        lines.append("the commits of the workers are gone")
    elif not pair.files:
        lines.append("both have the same files")
    else:
        lines.append(f"from worker {first.worker_id} to worker {other.worker_id}:")
        lines += [
            f"  {one_line(file.path)} +{file.added} -{file.removed}"
            for file in pair.files[:_MOST_FILES]
        ]
        if len(pair.files) > _MOST_FILES:
            lines.append(f"  and {len(pair.files) - _MOST_FILES} more files")
    return "\n".join(lines)


def _name(candidate: Candidate) -> str:
    model = candidate.model if candidate.model not in (None, "default") else ""
    return f"WORKER {candidate.worker_id} {one_line(model or '')}".rstrip()


def _rows(first: Candidate, other: Candidate) -> Iterator[tuple[str, ...]]:
    yield "place", _number(first.place), _number(other.place)
    yield "result", _result(first), _result(other)
    verdicts = [{each.command: each.verdict for each in side.verdicts} for side in (first, other)]
    for check in dict.fromkeys([*verdicts[0], *verdicts[1]]):
        cells = (verdicts[side].get(check, _NONE).replace("_", " ") for side in (0, 1))
        yield one_line(check), *cells
    if first.hidden or other.hidden:
        yield "hidden tests", first.hidden or _NONE, other.hidden or _NONE
    if first.lint is not None or other.lint is not None:
        yield "new lint findings", *(_number(each.lint) for each in (first, other))
    if first.wins or other.wins:
        yield "comparisons won", str(first.wins), str(other.wins)
    if first.same_output is not None or other.same_output is not None:
        yield "with the same output", *(_number(each.same_output) for each in (first, other))
    yield "changed lines", str(first.lines), str(other.lines)
    yield "cost", _cost(first), _cost(other)
    yield "duration", duration(first.duration), duration(other.duration)


def _result(candidate: Candidate) -> str:
    kinds = dict.fromkeys(flag.flag for flag in candidate.flags if flag.out)
    if candidate.out:
        return f"out: {', '.join(kinds)}"
    return "passes" if candidate.passes else "does not pass"


def _number(value: int | None) -> str:
    return _NONE if value is None else str(value)


def _cost(candidate: Candidate) -> str:
    return money(candidate.cost, known=True) if candidate.cost_known else UNKNOWN
