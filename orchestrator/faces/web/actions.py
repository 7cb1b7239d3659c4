"""The actions of web pages: stop, merge and pick, as the commands of these names do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.events import Notice
from orchestrator.base.results import Status
from orchestrator.base.text.quantities import count
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.request import read_request
from orchestrator.faces.web.commands import Commands
from orchestrator.faces.web.compare_page import candidate_row
from orchestrator.faces.web.rendering import Page, path_of, render
from orchestrator.faces.web.view import View, summary_of
from orchestrator.review.judging.pick import candidate_of, merge_candidate
from orchestrator.review.judging.store import latest_judgement
from orchestrator.review.landing.branches import read_branches
from orchestrator.review.landing.exclusion import exclusion
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.review.landing.merged import Merged
from orchestrator.review.landing.target import find_target
from orchestrator.runs.reports.decisions import kept_lines
from orchestrator.state.judgements import find_excluded_commits
from orchestrator.state.record.history import RunHistory
from orchestrator.state.record.stop_request import request_stop
from orchestrator.state.run_directory import all_runs


@dataclass(frozen=True)
class Actions:
    """Performs the actions that a browser requests: stop of workers, and commands."""

    commands: Commands = field(default_factory=Commands)

    def question(self, view: View, number: int | None) -> Page:
        """Return the page that asks the user to confirm that workers are stopped."""
        who = "the run" if number is None else f"worker {number}"
        run_id, repository = view.snapshot.run_id, view.run.repository
        lines = [
            "The agent gets a signal and a few seconds to end. What it wrote is saved on its "
            "branch.",
            "“Kill at once” leaves out these seconds; what the agent wrote is saved too.",
        ]
        if number is None:
            live = count(sum(w.result is None for w in view.snapshot.workers), "worker")
            lines.insert(0, f"{live} of {run_id} will be stopped.")
        values = {
            "repository": repository,
            "run_id": run_id,
            "back": view.site.href(repository, run_id, number),
            "question": f"Stop {who}?",
            "lines": lines,
            "buttons": (("stop", f"Stop {who}", "danger"), ("kill", "Kill at once", "ghost")),
        }
        return render("confirm.html", view.site, values)

    def stop(self, view: View, number: int | None, *, kill: bool) -> str:
        """Stop a worker, or all of the run, and return the address of the page to show next.

        Raises:
            OrchestratorError: The run has ended.
        """
        run = view.run
        with RunHistory(run.directory, run.outline) as history:
            chosen = list(history.workers) if number is None else [number]
            stopped = request_stop(history, chosen, kill=kill)
        if stopped:
            workers = ", ".join(map(str, stopped))
            message = f"web view: the user asked to {'kill' if kill else 'stop'} worker {workers}"
            run.directory.log_event(Notice(message=message))
        return path_of(run.repository, view.snapshot.run_id, number)


_FORMS: Mapping[str, str] = {
    "merge": "Merge commits",
    "squash": "One commit per worker",
    "rebase": "Rebased commits",
    "apply": "Uncommitted changes",
}
_CONFLICTS = ("stop", "skip")
Fields = Mapping[str, Sequence[str]]
"""Values of the fields of a form that a browser sent, by the fields' names."""


@dataclass(frozen=True, kw_only=True)
class _Question:
    """The merge that a form requests."""

    tab: str
    """Last part of the form's address."""
    chosen: Sequence[int]
    merge: Callable[[Wish], Merged]
    said: str
    """Verb in the message that is recorded after the merge: `merged` or `picked`."""
    candidate: Mapping[str, object] | None = None
    notes: list[str] = field(default_factory=list)
    """Messages about the merge to show on the page."""


def merge_page(view: View, given: Fields | None = None, *, named: int | None = None) -> Page:
    """Return the page on which a person merges workers: a form, then a preview, then the outcome.

    Workers that the run's judgement excludes are left out: only `pick_page` merges them.

    Args:
        view: The run.
        given: The fields of the sent form; None returns the page with the empty form.
        named: The worker that the form preselects. Default: all workers that succeeded and
            that the judgement does not exclude.
    """
    known = {worker.spec.worker_id for worker in view.snapshot.workers}
    asked = (given or {}).get("worker", ())
    chosen = [int(number) for number in asked if number.isdecimal() and int(number) in known]
    if given is None:
        chosen = [named] if named in known else _good(view)

    def merge(wish: Wish) -> Merged:
        if not chosen:
            raise ConfigError("no worker was chosen", key="worker.unnamed")
        repository = view.repository
        return merge_branches(
            repository, read_branches(repository, view.snapshot.run_id, chosen), wish
        )

    return _page(view, given, _Question(tab="merge", chosen=chosen, merge=merge, said="merged"))


def _good(view: View) -> list[int]:
    """Return the numbers of the workers that succeeded, and that no judgement excludes."""
    repository, onto = view.repository, view.repository.commit_of("HEAD")
    good = [
        worker.spec.worker_id
        for worker in view.snapshot.workers
        if worker.result and worker.result.status is Status.SUCCESS
    ]
    if onto is None or not find_excluded_commits(
        run.path for run in all_runs(repository.state_dir)
    ):
        return good
    run = read_branches(repository, view.snapshot.run_id)
    out = {branch.worker_id for branch in run.branches if exclusion(repository, run, branch, onto)}
    # protection: web-view-does-not-propose-to-merge-excluded-workers
    return [number for number in good if number not in out]


def pick_page(view: View, given: Fields | None = None, *, named: int | None = None) -> Page | None:
    """Return the page on which a person merges one candidate of a judgement, even if not the best.

    As in `merge_page`, the page is a form, then a preview, then the outcome.

    Args:
        view: The run.
        given: The fields of the sent form; None returns the page with the empty form.
        named: Number of the candidate. Default: the candidate that the judgement picked.

    Returns:
        The page; None if the run was not judged, or has no such candidate.
    """
    sent = _one(given or {}, "worker", "")
    number = int(sent) if sent.isdecimal() else named
    try:
        judgement = latest_judgement(view.repository.state_dir, view.snapshot.run_id)
        found = candidate_of(judgement, number)
    except ConfigError:
        return None
    if found is None:
        return None
    candidate, notes = found, list[str]()
    return _page(view, given, _Question(
        tab="pick",
        chosen=[candidate.worker_id],
        merge=lambda wish: merge_candidate(
            view.repository,
            judgement,
            candidate,
            replace(wish, overrules_judgement=True),
            notes.append,
        ),
        said="picked",
        candidate=candidate_row(candidate, view),
        notes=notes,
    ))  # fmt: skip


def _page(view: View, given: Fields | None, question: _Question) -> Page:
    fields = given or {}
    form, conflict = _one(fields, "form", "merge"), _one(fields, "conflict", "stop")
    values: dict[str, object] = {
        "repository": view.run.repository, "summary": summary_of(view), "target": "", "problem": "",
        "preview": None, "done": False, "form": form, "conflict": conflict,
        "forms": [*_FORMS.items()], "tab": question.tab, "chosen": question.chosen,
        "candidate": question.candidate,
    }  # fmt: skip
    try:
        values["target"] = find_target(view.repository, None).branch
        # The button `Change` returns to the form, which keeps what was chosen.
        if given is not None and _one(fields, "how", "") != "change":
            values |= _outcome(view, fields, question)
    except OrchestratorError as error:
        values["problem"] = one_line(str(error), limit=500)
    notes = dict.fromkeys(one_line(note, limit=500) for note in question.notes)
    return render("merge.html", view.site, values | {"notes": [*notes]})


def _outcome(view: View, fields: Fields, question: _Question) -> dict[str, object]:
    form, conflict = _one(fields, "form", "merge"), _one(fields, "conflict", "stop")
    if conflict not in _CONFLICTS:
        raise ConfigError("the form has an unknown value", key="form.invalid")
    request = read_request(MergeRequest, {"form": form, "on_conflict": conflict})
    # protection: preview-changes-nothing
    tried = replace(request, dry_run=True)
    preview = question.merge(Wish(request=tried, named=True))
    question.notes.extend(kept_lines(preview))
    if _one(fields, "how", "preview") != "merge":
        return {"preview": _clean(preview)}
    # protection: merge-only-from-where-preview-was
    if (_one(fields, "before", ""), _one(fields, "after", "")) != (preview.before, preview.after):
        raise ConfigError(
            f"`{preview.target}` or a worker's branch moved since the preview: "
            "open the preview again",
            key="preview.outdated",
        )
    merged = question.merge(Wish(request=request, named=True, previewed=preview))
    if merged.landed:
        workers = ", ".join(map(str, merged.landed))
        message = f"web view: {question.said} worker {workers} into {merged.target}"
        view.run.directory.log_event(Notice(message=message))
    return {"preview": _clean(merged), "done": True}


def _clean(merged: Merged) -> dict[str, object]:
    return merged.model_dump() | {
        "left": [
            {
                "worker_id": left.worker_id,
                "message": one_line(left.message, limit=500),
                "files": [one_line(path, limit=200) for path in left.files],
            }
            for left in merged.left
        ]
    }


def _one(fields: Fields, name: str, default: str) -> str:
    return next(iter(fields.get(name, ())), default)
