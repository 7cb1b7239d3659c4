"""The page with the list of runs."""

import hashlib
from collections.abc import Mapping

from orchestrator.web.formats import ago, moment, now
from orchestrator.web.library import PAGE, Library, ListedRun
from orchestrator.web.looks import look_at_run
from orchestrator.web.shell import Page, Shell, render
from orchestrator.web.view import contains, name_of, search_of


def runs_page(
    library: Library, shell: Shell, query: Mapping[str, str], *, page: int | None = 1
) -> Page:
    """Return the page with the list of runs, newest run first.

    Args:
        library: The runs.
        shell: The properties that all pages have.
        query: The parameters of the page's address: `q`, words to search for in id, repository,
            tasks and models of runs; `tests=show` also lists runs that test commits.
        page: Number of the page of the list, from 1; None: all runs on one page.
    """
    search = search_of(query)
    every = _found(library, query)
    last = max(1, -(-len(every) // PAGE)) if page else 1
    page = min(max(page or 1, 1), last)
    at = now()
    rows = []
    for run in every[(page - 1) * PAGE : page * PAGE] if last > 1 else every:
        look = look_at_run(library.snapshot(run), now=at, name=name_of(library.plan(run.directory)))
        rows.append(
            {
                "repository": run.repository,
                "look": look,
                "ago": ago(look.began, at),
                "began": moment(look.began),
            }
        )
    values = {
        "runs": rows,
        "page": page,
        "pages": last,
        "repositories": [*library.repositories],
        "search": search,
        "tests": _shows_tests(query),
        "hidden": 0 if _shows_tests(query) else sum(one.is_test for _, one in library.runs()),
    }
    version = runs_version(library, query, page)
    return render("runs.html", shell, values, version=version, live=True)


def runs_version(library: Library, query: Mapping[str, str], page: int) -> str:
    """Return a text that changes whenever the list of runs changes."""
    every = _found(library, query)
    marks = "_".join(library.version(run) for run in every[(page - 1) * PAGE : page * PAGE])
    return hashlib.sha256(f"{len(every)}-{marks}".encode()).hexdigest()


def _found(library: Library, query: Mapping[str, str]) -> list[ListedRun]:
    search, tests = search_of(query), _shows_tests(query)
    every = [one for one in library.runs() if tests or not one[1].is_test]
    return [
        run
        for run in library.listed(every)
        if not search or contains(search, *_texts(library, run))
    ]


def _shows_tests(query: Mapping[str, str]) -> bool:
    return query.get("tests") == "show"


def _texts(library: Library, run: ListedRun) -> list[str]:
    specs = run.outline.workers
    parts = [part for spec in specs for part in (spec.task, spec.model or "", spec.name or "")]
    name = name_of(library.plan(run.directory))
    return [run.directory.run_id, run.repository, name or "", *parts]
