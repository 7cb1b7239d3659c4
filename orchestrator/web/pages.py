"""The functions that create the pages of a run and of a worker, by the last part of the address."""

from collections.abc import Callable, Mapping

from orchestrator.record.worker_view import WorkerView
from orchestrator.web.compare_page import compare_page
from orchestrator.web.conflicts_page import conflicts_page
from orchestrator.web.judgement_page import judgement_page
from orchestrator.web.overview_page import overview_page
from orchestrator.web.rendering import Page
from orchestrator.web.run_pages import costs_page, details_page, events_page, graph_page
from orchestrator.web.view import View
from orchestrator.web.worker_pages import (
    checks_page,
    diff_page,
    findings_page,
    log_page,
    worker_details_page,
    worker_events_page,
)

RUN_PAGES: Mapping[str, Callable[[View], Page | None]] = {
    "": overview_page,
    "graph": graph_page,
    "judgement": judgement_page,
    "compare": compare_page,
    "conflicts": conflicts_page,
    "costs": costs_page,
    "events": events_page,
    "details": details_page,
}
WORKER_PAGES: Mapping[str, Callable[[View, WorkerView], Page | None]] = {
    "": log_page,
    "diff": diff_page,
    "checks": checks_page,
    "findings": findings_page,
    "events": worker_events_page,
    "details": worker_details_page,
}
