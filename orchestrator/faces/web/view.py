"""The request of a browser to see a run, and the variables that all pages of a run have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlencode

from orchestrator.base.events import WorkerMeasured
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.web.rendering import Page, Site, ago, moment, now, render
from orchestrator.faces.web.run_catalog import ListedRun, RunCatalog
from orchestrator.faces.web.summaries import NOTHING, RunSummary, summarize_run
from orchestrator.repository.repository import Repository
from orchestrator.state.record.history import LIVE
from orchestrator.state.record.run_view import RunView
from orchestrator.state.run_record import RunRecord

_TABS = (
    ("", "Overview"),
    ("graph", "Graph"),
    ("judgement", "Judgement"),
    ("compare", "Compare"),
    ("conflicts", "Conflicts"),
    ("costs", "Costs"),
    ("events", "Events"),
    ("details", "Details"),
)
_KEPT = ("q", "state", "page", "from", "to", "idle", "a", "b", "view")
"""Parameters of a page's address that its links keep."""
_MOST_DIGITS = 15
TICK = 2
"""Seconds between two refreshes of a page that changes as time passes."""
_LONGEST_SEARCH = 200


@dataclass(frozen=True)
class View:
    """A run as one request of a browser sees it."""

    catalog: RunCatalog
    run: ListedRun
    snapshot: RunView
    site: Site
    query: Mapping[str, str] = field(default_factory=dict)
    """The query parameters of the page's address."""

    @property
    def repository(self) -> Repository:
        """The git repository of the run."""
        return self.catalog.repositories[self.run.repository]

    @property
    def plan(self) -> RunRecord | None:
        """The whole plan of the run; None if the plan has an unknown format."""
        return self.catalog.plan(self.run.directory)

    @cached_property
    def usage(self) -> Mapping[int, WorkerMeasured]:
        """The latest measurements of the workers; empty if the run is not live."""
        return self.catalog.usage_of(self.run) if self.snapshot.is_live else NOTHING

    def number(self, name: str) -> int | None:
        """Return a number among the query's parameters; None if it is missing or not valid."""
        text = self.query.get(name, "")
        good = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
        return int(text) if good else None

    def same_page(self, **changes: str | None) -> str:
        """Return the page's address with changed parameters; the value None removes a parameter."""
        known = {name: self.query[name] for name in _KEPT if name in self.query}
        kept = {name: value for name, value in (known | changes).items() if value}
        return f"?{urlencode(kept)}"

    def page(self, template: str, values: Mapping[str, object], *, moves: bool = False) -> Page:
        """Render a page of the run.

        Args:
            template: Name of the template.
            values: Variables of the template.
            moves: Whether the page changes as time passes while the run is live.
        """
        version = self.snapshot.version + (tick(self.snapshot.version) if moves else "")
        return render(template, self.site, values, version=version, live=self.snapshot.is_live)


def tick(version: str) -> str:
    """Return a suffix for a page's version that changes as time passes, while its run is live."""
    return f"-{int(now().timestamp()) // TICK}" if version.startswith(LIVE) else ""


def name_of(plan: RunRecord | None) -> str | None:
    """Return the name of a run's workflow; None if the run has no workflow."""
    return plan.workflow.name if plan and plan.workflow else None


def summary_of(view: View, measured: Mapping[int, WorkerMeasured] = NOTHING) -> RunSummary:
    """Return the texts and numbers that pages show for the run at this moment."""
    return summarize_run(view.snapshot, measured=measured)


def run_values(view: View, *, tab: str, summary: RunSummary | None = None) -> dict[str, object]:
    """Return the template variables that all pages of a run have.

    Args:
        view: The run.
        tab: Name of the page.
        summary: The texts that the page shows for the run. Default: texts without measurements.
    """
    summary = summary or summary_of(view)
    absent = set()
    if view.plan is None or view.plan.workflow is None:
        absent.add("graph")
    if next(view.run.directory.path.glob("judgement-*.json"), None) is None:
        absent.add("judgement")
    if len(view.snapshot.workers) < 2:
        absent.add("compare")
    return {
        "repository": view.run.repository,
        "summary": summary,
        "base": view.snapshot.base[:12],
        "began": moment(summary.began),
        "ago": ago(summary.began, now()),
        "current": tab,
        "attention": summary.attention,
        "is_judged": "judgement" not in absent,
        "tabs": [(name, title) for name, title in _TABS if name not in absent],
        "same_page": view.same_page,
        "ended": not view.snapshot.is_live,
        "can_repeat": view.plan is not None and view.plan.workflow is None,
    }


def search_of(query: Mapping[str, str]) -> str:
    """Return the text in the parameter `q` by which a user searches a list; empty if not set."""
    return one_line(query.get("q", ""), limit=_LONGEST_SEARCH).strip()


def page_of(query: Mapping[str, str], count: int, size: int) -> tuple[int, int]:
    """Return the number of the page of a list that a user asks for, and the number of pages."""
    last, text = max(1, -(-count // max(size, 1))), query.get("page", "")
    asked = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 1
    return min(max(asked, 1), last), last


def contains(search: str, *texts: str) -> bool:
    """Return whether each word of `search` occurs in one of `texts`, ignoring case."""
    everything = " ".join(texts).casefold()
    return all(word in everything for word in search.casefold().split())
