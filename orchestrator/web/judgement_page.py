"""The page with the judgement of a run: which worker is best, and why."""

from orchestrator.errors import ConfigError
from orchestrator.judging.judgement import Candidate, Judgement
from orchestrator.judging.store import latest_judgement
from orchestrator.text.quantities import count
from orchestrator.text.sanitize import one_line
from orchestrator.web.formats import dollars
from orchestrator.web.rendering import Page
from orchestrator.web.view import View, run_values

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
