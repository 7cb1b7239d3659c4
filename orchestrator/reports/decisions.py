"""Present the judgement of a run's candidates, and the merge of its branches, as text."""

from collections.abc import Iterator

from orchestrator.judging.judgement import Candidate, Judgement
from orchestrator.landing.merged import Merged
from orchestrator.text.quantities import UNKNOWN, count, money
from orchestrator.text.sanitize import one_line

HEADING = ("Place", "Worker", "Result", "Checks", "Lines", "Cost", "Decided by")
_MOST_FLAGS = 5
_MOST_FILES = 5
_SHORT = 12


def candidate_row(one: Candidate) -> tuple[str, ...]:
    """Return the cells of a candidate's row in a table, in the order of `HEADING`."""
    model = f" {one_line(one.model)}" if one.model and one.model != "default" else ""
    passed = sum(check.passed for check in one.verdicts)
    return (
        "-" if one.place is None else str(one.place),
        f"{one.worker_id}{model}",
        _result(one),
        f"{passed}/{len(one.verdicts)}" if one.verdicts else "-",
        str(one.lines),
        money(one.cost, known=one.cost_known) if one.cost_known else UNKNOWN,
        one.decided_by or "",
    )


def _result(one: Candidate) -> str:
    if one.out:
        return "out: " + ", ".join(dict.fromkeys(flag.flag for flag in one.flags if flag.out))
    if one.passes:
        return "passes"
    if one.hidden == "fail" and all(check.passed for check in one.verdicts):
        return "fails the hidden tests"
    bad = [check for check in one.verdicts if not check.passed]
    return ", ".join(dict.fromkeys(check.verdict.replace("_", " ") for check in bad)) or "unknown"


def flag_lines(judgement: Judgement) -> Iterator[str]:
    """Yield a line for each finding about a candidate, and for each ignored unstable check."""
    for one in judgement.ranking:
        for flag in one.flags[:_MOST_FLAGS]:
            place = f" ({one_line(flag.file)}:{flag.line})" if flag.file and flag.line else ""
            yield f"worker {one.worker_id}: {flag.flag}: {one_line(flag.message)}{place}"
        if len(one.flags) > _MOST_FLAGS:
            yield f"worker {one.worker_id}: {len(one.flags) - _MOST_FLAGS} more findings"
    for check in judgement.unstable:
        yield f"check not counted, because its results on the base differ: {one_line(check)}"


def decision(judgement: Judgement) -> str:
    """Return the decision of a judgement in one line."""
    passing = sum(one.passes for one in judgement.ranking)
    said = f"{count(len(judgement.ranking), 'candidate')}, {passing} of them pass: "
    if judgement.decision == "clear":
        return f"{said}worker {judgement.picked} is the best (`orchestrator pick`)"
    if judgement.decision == "none":
        return f"{said}there is nothing to pick"
    first = next(one for one in judgement.ranking if one.passes)
    if first.needs_review:
        return f"{said}undecided; review worker {first.worker_id} first"
    return (
        f"{said}undecided; worker {first.worker_id} is first by {first.decided_by} only "
        f"(`orchestrator pick {first.worker_id}`)"
    )


def winner(judgement: Judgement | None) -> Candidate | None:
    """Return the candidate that is clearly the best; None if no candidate is."""
    if judgement is None or judgement.picked is None:
        return None
    return next((one for one in judgement.ranking if one.worker_id == judgement.picked), None)


def kept_lines(merged: Merged) -> Iterator[str]:
    """Yield a notice on kept commits on which a forge would act, and a line for each."""
    if not merged.kept:
        return
    said = count(len(merged.kept), "commit")
    yield (
        f"the history keeps {said} on which a forge acts after a push; "
        "`--as squash` keeps no message of a worker"
    )
    for one in merged.kept[:_MOST_FILES]:
        yield f"{one.commit[:_SHORT]} {one.author}: {one.subject} ({', '.join(one.effects)})"


def merge_lines(merged: Merged) -> Iterator[str]:
    """Yield a line for all merged workers, and a line for each worker that was not merged."""
    verb = {"apply": "applied to the files of"}.get(merged.form, "merged into")
    if merged.landed:
        workers = ", ".join(str(number) for number in merged.landed)
        would = "would be " if merged.dry_run else ""
        where = f"{merged.before[:_SHORT]}..{merged.after[:_SHORT]}"
        yield f"worker {workers}: {would}{verb} {merged.target} ({where})"
    for one in merged.resolved:
        yield f"worker {one.worker_id}: an agent resolved the conflict (run {one.run_id})"
    if merged.contained:
        workers = ", ".join(str(number) for number in merged.contained)
        yield f"worker {workers}: {merged.target} already has all of the work"
    for left in merged.left:
        named = ", ".join(one_line(path) for path in left.files[:_MOST_FILES])
        more = f" and {len(left.files) - _MOST_FILES} more" if len(left.files) > _MOST_FILES else ""
        files = f" in {named}{more}" if named else ""
        yield f"worker {left.worker_id}: not merged: {left.message}{files}"
        for refused in left.refused:
            yield f"worker {left.worker_id}: resolution refused: {refused}"
