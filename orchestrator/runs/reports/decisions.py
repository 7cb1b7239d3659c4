"""Present the judgement of a run's candidates, and the merge of its branches, as text."""

from collections.abc import Iterator

from orchestrator.base.text.quantities import UNKNOWN, count, money
from orchestrator.base.text.sanitize import one_line
from orchestrator.review.judging.judgement import Candidate, Judgement
from orchestrator.review.landing.merged import Merged

HEADING = ("Place", "Worker", "Result", "Checks", "Lines", "Cost", "Decided by")
_MOST_FLAGS = 5
_MOST_FILES = 5
_SHORT = 12


def candidate_row(candidate: Candidate) -> tuple[str, ...]:
    """Return the cells of a candidate's row in a table, in the order of `HEADING`."""
    model = (
        f" {one_line(candidate.model)}" if candidate.model and candidate.model != "default" else ""
    )
    passed = sum(check.passed for check in candidate.verdicts)
    return (
        "-" if candidate.place is None else str(candidate.place),
        f"{candidate.worker_id}{model}",
        _result(candidate),
        f"{passed}/{len(candidate.verdicts)}" if candidate.verdicts else "-",
        str(candidate.lines),
        money(candidate.cost, known=candidate.cost_known) if candidate.cost_known else UNKNOWN,
        candidate.decided_by or "",
    )


def _result(candidate: Candidate) -> str:
    if candidate.out:
        return "out: " + ", ".join(dict.fromkeys(flag.flag for flag in candidate.flags if flag.out))
    if candidate.passes:
        return "passes"
    if candidate.hidden == "fail" and all(check.passed for check in candidate.verdicts):
        return "fails the hidden tests"
    bad = [check for check in candidate.verdicts if not check.passed]
    return ", ".join(dict.fromkeys(check.verdict.replace("_", " ") for check in bad)) or "unknown"


def flag_lines(judgement: Judgement) -> Iterator[str]:
    """Yield a line for each finding about a candidate, and for what could not be compared."""
    for candidate in judgement.ranking:
        for flag in candidate.flags[:_MOST_FLAGS]:
            place = f" ({one_line(flag.file)}:{flag.line})" if flag.file and flag.line else ""
            yield f"worker {candidate.worker_id}: {flag.flag}: {one_line(flag.message)}{place}"
        if len(candidate.flags) > _MOST_FLAGS:
            more = len(candidate.flags) - _MOST_FLAGS
            yield f"worker {candidate.worker_id}: {more} more findings"
    for check in judgement.unstable:
        yield f"check not counted, because its results on the base differ: {one_line(check)}"
    for check in judgement.varying_names:
        yield f"check whose tests have other names in each run on the base: {one_line(check)}"
    for problem in judgement.judge_problems:
        yield f"a run of the judge command decides nothing: {one_line(problem, limit=400)}"


def decision(judgement: Judgement) -> str:
    """Return the decision of a judgement in one line."""
    passing = sum(candidate.passes for candidate in judgement.ranking)
    said = f"{count(len(judgement.ranking), 'candidate')}, {passing} of them pass: "
    if judgement.decision == "clear":
        return f"{said}worker {judgement.picked} is the best (`orchestrator pick`)"
    if judgement.decision == "none":
        return f"{said}there is nothing to pick"
    first = next(candidate for candidate in judgement.ranking if candidate.passes)
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
    return next(
        (candidate for candidate in judgement.ranking if candidate.worker_id == judgement.picked),
        None,
    )


def kept_lines(merged: Merged) -> Iterator[str]:
    """Yield a notice on kept commits on which a forge would act, and a line for each."""
    if not merged.kept:
        return
    said = count(len(merged.kept), "commit")
    yield (
        f"the history keeps {said} on which a forge acts after a push; "
        "`--as squash` keeps no message of a worker"
    )
    for kept in merged.kept[:_MOST_FILES]:
        yield f"{kept.commit[:_SHORT]} {kept.author}: {kept.subject} ({', '.join(kept.effects)})"


def merge_lines(merged: Merged) -> Iterator[str]:
    """Yield a line for all merged workers, and a line for each worker that was not merged."""
    verb = {"apply": "applied to the files of"}.get(merged.form, "merged into")
    if merged.landed:
        workers = ", ".join(str(number) for number in merged.landed)
        would = "would be " if merged.dry_run else ""
        where = f"{merged.before[:_SHORT]}..{merged.after[:_SHORT]}"
        yield f"worker {workers}: {would}{verb} {merged.target} ({where})"
    for resolution in merged.resolved:
        run = f"run {resolution.run_id}"
        yield f"worker {resolution.worker_id}: an agent resolved the conflict ({run})"
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
