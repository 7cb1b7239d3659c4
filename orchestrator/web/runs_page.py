"""The page with the list of runs."""

import hashlib
from collections.abc import Mapping

from orchestrator.web.formats import ago, moment, now
from orchestrator.web.rendering import Page, Site, render
from orchestrator.web.run_catalog import PAGE, ListedRun, RunCatalog
from orchestrator.web.summaries import summarize_run
from orchestrator.web.view import contains, name_of, search_of


def runs_page(
    catalog: RunCatalog, site: Site, query: Mapping[str, str], *, page: int | None = 1
) -> Page:
    """Return the page with the list of runs, newest run first.

    Args:
        catalog: The runs.
        site: The properties that all pages have.
        query: The parameters of the page's address: `q`, words to search for in id, repository,
            tasks and models of runs; `tests=show` also lists runs that test commits.
        page: Number of the page of the list, from 1; None: all runs on one page.
    """
    search = search_of(query)
    every = _found(catalog, query)
    last = max(1, -(-len(every) // PAGE)) if page else 1
    page = min(max(page or 1, 1), last)
    at = now()
    rows = []
    for run in every[(page - 1) * PAGE : page * PAGE] if last > 1 else every:
        name = name_of(catalog.plan(run.directory))
        summary = summarize_run(catalog.snapshot(run), now=at, name=name)
        rows.append(
            {
                "repository": run.repository,
                "summary": summary,
                "ago": ago(summary.began, at),
                "began": moment(summary.began),
            }
        )
    values = {
        "runs": rows,
        "page": page,
        "pages": last,
        "repositories": [*catalog.repositories],
        "search": search,
        "tests": _shows_tests(query),
        "hidden": 0 if _shows_tests(query) else sum(one.is_test for _, one in catalog.runs()),
    }
    version = runs_version(catalog, query, page)
    return render("runs.html", site, values, version=version, live=True)


def runs_version(catalog: RunCatalog, query: Mapping[str, str], page: int) -> str:
    """Return a text that changes whenever the list of runs changes."""
    every = _found(catalog, query)
    marks = "_".join(catalog.version(run) for run in every[(page - 1) * PAGE : page * PAGE])
    return hashlib.sha256(f"{len(every)}-{marks}".encode()).hexdigest()


def _found(catalog: RunCatalog, query: Mapping[str, str]) -> list[ListedRun]:
    search, tests = search_of(query), _shows_tests(query)
    every = [one for one in catalog.runs() if tests or not one[1].is_test]
    return [
        run
        for run in catalog.listed(every)
        if not search or contains(search, *_texts(catalog, run))
    ]


def _shows_tests(query: Mapping[str, str]) -> bool:
    return query.get("tests") == "show"


def _texts(catalog: RunCatalog, run: ListedRun) -> list[str]:
    specs = run.outline.workers
    parts = [part for spec in specs for part in (spec.task, spec.model or "", spec.name or "")]
    name = name_of(catalog.plan(run.directory))
    return [run.directory.run_id, run.repository, name or "", *parts]
