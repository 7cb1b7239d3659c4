"""The pages of forms that start commands, and the pages about these commands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.events import Notice
from orchestrator.base.text.sanitize import lines, one_line
from orchestrator.faces.web.commands import (
    Commands,
    Form,
    Job,
    Values,
)
from orchestrator.faces.web.rendering import Page, Site, path_of, render
from orchestrator.faces.web.view import View, summary_of
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import RunDirectory


@dataclass(frozen=True)
class Asked:
    """The form that a browser asks for, and where it belongs."""

    form: Form
    repository: Repository
    place: Mapping[str, object]
    """Variables of the template."""
    run: RunDirectory | None = None
    notes: tuple[str, ...] = ()


def answer(commands: Commands, site: Site, asked: Asked, given: Values | None) -> Page | str:
    """Return the page of a form, or start its command.

    Args:
        commands: Starts the command.
        site: The properties that all pages have.
        asked: The form.
        given: The fields of the sent form; None returns the form as it is at first.

    Returns:
        The page to show, or the address of the page to show next.
    """
    form, problem, preview = asked.form, "", ""
    # A browser does not send empty fields of checkboxes.
    values = given if given is not None else {item.name: item.values for item in form.fields}
    how = next(iter((given or {}).get("how", ())), "")
    try:
        line = form.line(values)
        told = next(iter(values.get("previewed", ())), "").replace("\r\n", "\n")
        # protection: only-previewed-commands-are-started
        if how == "start" and form.preview and told != line:
            how = "preview"
        if how == "start":
            return start(commands, asked, values)[1]
        if how == "preview" and form.preview:
            code, said = commands.preview(form, values, asked.repository.top)
            preview, problem = ("", said) if code else (said or "There is nothing to do.", "")
    except OrchestratorError as error:
        line, problem = "", "\n".join(text for text in (error.message, error.hint) if text)
    page = render("command.html", site, {
        **asked.place,
        "form": form,
        "rows": [*_rows(form, values)],
        "line": lines(line),
        "told": line,
        "preview": preview,
        "problem": one_line(problem, limit=2000),
        "notes": [one_line(note, limit=500) for note in asked.notes],
    })  # fmt: skip
    return replace(page, status=409) if problem else page


def start(commands: Commands, asked: Asked, values: Values) -> tuple[Job, str]:
    """Start the command of a form; return it, and the address to show next."""
    run, repository = asked.run, asked.repository
    job = commands.start(asked.form, values, repository.top, run_id=run.run_id if run else None)
    if run is not None and run.path.is_dir():
        line = one_line(asked.form.line_to_record(values), limit=300)
        run.log_event(Notice(message=f"web view: the user started `{line}`"))
    return job, _done_at(str(asked.place["repository"]), job, run)


def _rows(form: Form, values: Values) -> Iterator[dict[str, object]]:
    for item in form.fields:
        texts = [text for text in values.get(item.name, ()) if text.strip()]
        if item.kind == "tasks":
            # One more than there are, for a further task.
            texts = [*texts, ""]
        elif item.kind == "lines":
            texts = ["\n".join(texts)]
        elif item.kind == "text" and item.name == "models":
            texts = [",".join(texts)]
        yield {"field": item, "texts": texts or [""], "is_set": any(texts)}


def place_of(view: View, number: int | None = None) -> dict[str, object]:
    """Return where a form of a run, or of one of its workers, belongs."""
    run_id, repository = view.snapshot.run_id, view.run.repository
    return {
        "repository": repository,
        "run_id": run_id,
        "workers": summary_of(view).workers,
        "back": path_of(repository, run_id, number),
    }


def place_of_new(repository: str) -> dict[str, object]:
    """Return where the form of a new run belongs."""
    return {"repository": repository, "run_id": "", "workers": (), "back": "/"}


def job_page(site: Site, repository: str, job: Job) -> Page:
    """Return the page about a command that was started; it is refreshed until the end."""
    code, output = job.code, job.output
    run_id, tab = job.target
    goes_on = job.form.goes_on and code is None
    values = {
        "repository": repository,
        "job": job,
        "code": code,
        "line": lines(job.line),
        "output": output,
        "target": path_of(repository, run_id, tab) if run_id and (job.is_good or goes_on) else "",
        "back": path_of(repository, job.run_id) if job.run_id else "/",
    }
    version = f"command-{job.number}-{code}-{len(output)}"
    return render("job.html", site, values, version=version, live=code is None)


def _done_at(repository: str, job: Job, run: RunDirectory | None) -> str:
    """Return the address to show after a command was started: what it did, or its own page."""
    run_id, tab = job.target
    # The page of a run that is not live yet would not be refreshed.
    goes_on = job.form.goes_on and job.code is None and run is not None and run.is_live()
    if run_id is not None and (goes_on or (job.is_good and not job.form.shows_output)):
        return path_of(repository, run_id, tab)
    return path_of(repository, "command", job.number)
