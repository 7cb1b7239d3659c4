"""Show a judgement as a table with the reasons for its order."""

from collections.abc import Iterator

from orchestrator.cli.output.formats import table, terminal_width
from orchestrator.judging.judgement import Candidate, Judgement
from orchestrator.text.quantities import UNKNOWN, count, money
from orchestrator.text.sanitize import one_line

_MOST_TOLD = 5
_HEAD = ("PLACE", "WORKER", "RESULT", "CHECKS", "LINES", "COST", "DECIDED BY")


def judgement_text(judgement: Judgement) -> str:
    """Return the table of candidates, what was found about each, and the decision."""
    rows = [_HEAD, *(_row(one) for one in judgement.candidates)]
    parts = [table(rows, width=terminal_width(), shrink=2), *_findings(judgement)]
    return "\n".join([*parts, _decision(judgement)])


def _row(one: Candidate) -> tuple[str, ...]:
    model = f" {one_line(one.model)}" if one.model and one.model != "default" else ""
    passed = sum(check.passed for check in one.checks)
    return (
        str(one.place),
        f"{one.worker_id}{model}",
        _result(one),
        f"{passed}/{len(one.checks)}" if one.checks else "-",
        str(one.lines),
        money(one.cost, known=one.cost_known) if one.cost_known else UNKNOWN,
        one.decided_by or "",
    )


def _result(one: Candidate) -> str:
    if one.out:
        return "out: " + ", ".join(dict.fromkeys(flag.kind for flag in one.flags if flag.out))
    if one.passes:
        return "passes"
    if one.hidden == "fail" and all(check.passed for check in one.checks):
        return "fails the hidden tests"
    bad = [check for check in one.checks if not check.passed]
    return ", ".join(dict.fromkeys(check.verdict.replace("_", " ") for check in bad)) or "unknown"


def _findings(judgement: Judgement) -> Iterator[str]:
    if any(flag for one in judgement.candidates for flag in one.flags):
        yield ""
    for one in judgement.candidates:
        for flag in one.flags[:_MOST_TOLD]:
            place = f" ({one_line(flag.file)}:{flag.line})" if flag.file and flag.line else ""
            yield f"worker {one.worker_id}: {flag.kind}: {one_line(flag.message)}{place}"
        if len(one.flags) > _MOST_TOLD:
            yield f"worker {one.worker_id}: {len(one.flags) - _MOST_TOLD} more findings"
    for check in judgement.unstable:
        yield f"not counted, because its results on the base differ: {one_line(check)}"
    yield ""


def _decision(judgement: Judgement) -> str:
    passing = sum(one.passes for one in judgement.candidates)
    said = f"{count(len(judgement.candidates), 'candidate')}, {passing} of them pass: "
    if judgement.decision == "clear":
        return f"{said}worker {judgement.pick} is the best (`orchestrator pick`)"
    if judgement.decision == "none":
        return f"{said}there is nothing to pick"
    first = next(one for one in judgement.candidates if one.passes)
    return (
        f"{said}undecided; worker {first.worker_id} is first by {first.decided_by} only "
        f"(`orchestrator pick {first.worker_id}`)"
    )
