"""The page with the list of runs."""

import hashlib
from collections.abc import Mapping
from functools import partial
from urllib.parse import urlencode

from orchestrator.base.results import Status
from orchestrator.faces.web.rendering import Page, Site, ago, moment, now, render
from orchestrator.faces.web.run_catalog import PAGE, ListedRun, RunCatalog
from orchestrator.faces.web.summaries import summarize_run
from orchestrator.faces.web.view import contains, name_of, page_of, search_of
from orchestrator.state.judgements import judgement_numbers

STATES = ("running", *Status, "died", "cancelled")
"""States of runs by which the list can be filtered."""


def runs_page(catalog: RunCatalog, site: Site, query: Mapping[str, str]) -> Page:
    """Return the page with the list of runs, newest run first; an export has all on one page.

    Args:
        catalog: The runs.
        site: The properties that all pages have.
        query: The parameters of the page's address: `q`, words to search for in id, repository,
            tasks and models of runs; `state`, one of `STATES`; `repository`; `judged=yes`;
            `tests=show` also lists runs that test commits; `page`.
    """
    every = _found(catalog, query)
    size = max(len(every), 1) if site.is_static else PAGE
    page, last = page_of(query, len(every), size)
    at = now()
    rows, attention = [], 0
    for run in every[(page - 1) * size : page * size]:
        summary = summarize_run(catalog.snapshot(run))
        attention += summary.attention
        rows.append(
            {
                "repository": run.repository,
                "summary": summary,
                "ago": ago(summary.began, at),
                "began": moment(summary.began),
            }
        )
    filters = {name: query[name] for name in ("q", "state", "repository", "judged", "tests")
               if query.get(name)}  # fmt: skip
    values = {
        "runs": rows,
        "page": page,
        "pages": last,
        "repositories": [*catalog.repositories],
        "states": STATES,
        "search": search_of(query),
        "filters": filters,
        "is_filtered": bool(filters.keys() - {"tests"}),
        "same_page": partial(_same_page, filters),
        "attention": attention,
        "others": [
            f"{run.run_id}: run of {user}, not readable"
            for _, run in catalog.runs()
            if (user := run.other_user) is not None
        ],
        "hidden": 0 if _shows_tests(query) else sum(run.is_test for _, run in catalog.runs()),
    }
    return render("runs.html", site, values, version=runs_version(catalog, query), live=True)


def _same_page(filters: Mapping[str, str], **changes: str | None) -> str:
    """Return the list's address with changed filters; the value None removes a filter."""
    kept = {name: value for name, value in {**filters, **changes}.items() if value}
    return f"?{urlencode(kept)}"


def runs_version(catalog: RunCatalog, query: Mapping[str, str]) -> str:
    """Return a text that changes whenever the list of runs changes."""
    every = _found(catalog, query)
    page, _ = page_of(query, len(every), PAGE)
    marks = "_".join(catalog.version(run) for run in every[(page - 1) * PAGE : page * PAGE])
    return hashlib.sha256(f"{len(every)}-{marks}".encode()).hexdigest()


def _found(catalog: RunCatalog, query: Mapping[str, str]) -> list[ListedRun]:
    search, state = search_of(query), query.get("state", "")
    every = [
        run
        for run in catalog.runs()
        if (_shows_tests(query) or not run[1].is_test)
        and query.get("repository", "") in ("", run[0])
        and (query.get("judged") != "yes" or any(judgement_numbers(run[1].path)))
    ]
    return [
        run
        for run in catalog.readable(every)
        if state in ("", catalog.badge(run).word.lower())
        and (not search or contains(search, *_texts(catalog, run)))
    ]


def _shows_tests(query: Mapping[str, str]) -> bool:
    return query.get("tests") == "show"


def _texts(catalog: RunCatalog, run: ListedRun) -> list[str]:
    specs = run.outline.workers
    parts = [part for spec in specs for part in (spec.task, spec.model or "", spec.name or "")]
    name = name_of(catalog.plan(run.directory))
    return [run.directory.run_id, run.repository, name or "", *parts]
