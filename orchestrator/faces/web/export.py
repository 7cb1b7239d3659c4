"""Write the pages of runs as HTML files that need no server and no script."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.atomic import replace_file
from orchestrator.base.files.output import output_directory
from orchestrator.faces.web.compare_page import address_of, compare_page, pairs_to_export
from orchestrator.faces.web.logs import logs_of
from orchestrator.faces.web.rendering import Page, Site
from orchestrator.faces.web.run_catalog import ListedRun, RunCatalog
from orchestrator.faces.web.run_pages import RUN_PAGES
from orchestrator.faces.web.runs_page import runs_page
from orchestrator.faces.web.view import View
from orchestrator.faces.web.worker_pages import WORKER_PAGES, log_page

_ASSETS = ("app.css", "theme.js", "icon.svg", "icon-attention.svg")
Written = tuple[str, Page | None]


def export(catalog: RunCatalog, directory: Path) -> int:
    """Write all pages of all runs into a directory, and return the number of runs.

    Raises:
        ConfigError: The directory cannot be written, or contains files that no export wrote.
    """
    site = Site(is_static=True, read_only=True)
    runs = catalog.readable(catalog.runs())
    try:
        with output_directory(directory) as folder:
            names = os.listdir(folder)  # noqa: PTH208 - a descriptor
            # protection: export-replaces-only-export
            if names and "app.css" not in names:
                raise ConfigError(
                    f"{directory} contains files that no export wrote",
                    key="directory.occupied",
                    hint="name an empty directory, or the directory of an earlier export",
                )
            static = files("orchestrator.faces.web").joinpath("static")
            for name in _ASSETS:
                replace_file(folder, name, static.joinpath(name).read_bytes())
            for name, page in _pages(catalog, runs, site):
                if page is not None:
                    replace_file(folder, name, page.html.encode())
    except OSError as error:
        raise ConfigError(
            f"cannot write to {directory}: {error.strerror}", key="directory.unwritable"
        ) from error
    return len(runs)


def _pages(catalog: RunCatalog, runs: Sequence[ListedRun], site: Site) -> Iterator[Written]:
    yield site.href(), runs_page(catalog, site, {})
    for run in runs:
        view = View(catalog, run, catalog.snapshot(run), site)
        place = (run.repository, run.directory.run_id)
        for tab, page_of_run in RUN_PAGES.items():
            yield site.href(*place, tab), page_of_run(view)
        for a, b in pairs_to_export(view):
            pair = replace(view, query={"a": str(a), "b": str(b)})
            yield address_of(view, (a, b)), compare_page(pair)
        for worker in view.snapshot.workers:
            own = (*place, worker.worker_id)
            for tab, page_of_worker in WORKER_PAGES.items():
                yield site.href(*own, tab), page_of_worker(view, worker)
            for log in logs_of(run.directory, worker.worker_id):
                name = site.href(*own, "log", log.name)
                yield name, log_page(view, worker, name=log.name)
