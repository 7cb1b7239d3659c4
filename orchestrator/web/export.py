"""Write the pages of runs as HTML files that need no server and no script."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.files.atomic import replace_file
from orchestrator.files.output import output_directory
from orchestrator.web.compare_page import address_of, compare_page, exported_pairs
from orchestrator.web.logs import logs_of
from orchestrator.web.pages import RUN_PAGES, WORKER_PAGES
from orchestrator.web.rendering import Page, Site
from orchestrator.web.run_catalog import ListedRun, RunCatalog
from orchestrator.web.runs_page import runs_page
from orchestrator.web.view import View
from orchestrator.web.worker_pages import log_page

_ASSETS = ("app.css", "theme.js", "icon.svg", "icon-attention.svg")
Written = tuple[str, Page | None]


def export(catalog: RunCatalog, directory: Path) -> int:
    """Write all pages of all runs into a directory, and return the number of runs.

    Raises:
        ConfigError: The directory cannot be written, or contains files that no export wrote.
    """
    site = Site(is_static=True, read_only=True)
    runs = catalog.listed(catalog.runs())
    try:
        with output_directory(directory) as folder:
            _check_content(directory, folder)
            for name, text in _assets():
                replace_file(folder, name, text.encode())
            for name, page in _pages(catalog, runs, site):
                if page is not None:
                    replace_file(folder, name, page.html.encode())
    except OSError as error:
        raise ConfigError(f"cannot write to {directory}: {error.strerror}") from error
    return len(runs)


def _check_content(directory: Path, folder: int) -> None:
    names = os.listdir(folder)
    # protection: export-replaces-only-export
    if names and "app.css" not in names:
        raise ConfigError(
            f"{directory} contains files that no export wrote",
            hint="name an empty directory, or the directory of an earlier export",
        )


def _assets() -> Iterator[tuple[str, str]]:
    folder = files("orchestrator.web").joinpath("static")
    for name in _ASSETS:
        yield name, folder.joinpath(name).read_text(encoding="utf-8")


def _pages(catalog: RunCatalog, runs: Sequence[ListedRun], site: Site) -> Iterator[Written]:
    yield site.href(), runs_page(catalog, site, {})
    for run in runs:
        view = View(catalog, run, catalog.snapshot(run), site)
        for tab, make in RUN_PAGES.items():
            name = site.href(run.repository, run.directory.run_id, tab)
            yield name, make(view)
        for a, b in exported_pairs(view):
            pair = replace(view, query={"a": str(a), "b": str(b)})
            yield address_of(view, (a, b)), compare_page(pair)
        yield from _worker_pages(view)


def _worker_pages(view: View) -> Iterator[Written]:
    for worker in view.snapshot.workers:
        number = worker.spec.worker_id
        place = (view.run.repository, view.snapshot.run_id, number)
        for tab, make in WORKER_PAGES.items():
            yield view.site.href(*place, tab), make(view, worker)
        for log in logs_of(view.run.directory, number):
            name = view.site.href(*place, "log", log.name)
            yield name, log_page(view, worker, name=log.name)
