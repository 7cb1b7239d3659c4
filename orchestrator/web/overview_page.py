"""The page with the overview of a run: its workers on a timeline."""

from collections.abc import Sequence

from orchestrator.record.states import RunState
from orchestrator.text.quantities import size
from orchestrator.text.sanitize import one_line
from orchestrator.web.forms import merges
from orchestrator.web.rendering import Page
from orchestrator.web.summaries import WorkerSummary
from orchestrator.web.timeline import legend, timeline_of, zoom_of
from orchestrator.web.view import View, contains, page_of, run_values, search_of, summary_of

PAGE = 100
"""Maximum number of workers on one page."""
_MOST_ALERTS = 20
"""Maximum number of workers that need attention and are listed above the table."""


def overview_page(view: View) -> Page:
    """Return the page with the overview of a run."""
    snapshot, summary = view.snapshot, summary_of(view, view.usage)
    search, state = search_of(view.query), view.query.get("state", "")[:40]
    found = [pair for pair in zip(summary.workers, snapshot.workers, strict=True)
             if state in ("", pair[0].badge.group)
             and (not search or contains(search, *_texts(pair[0])))]  # fmt: skip
    most = len(found) if view.site.is_static else PAGE
    if len(found) > most:
        # Those that need a look come first, because not all are on the page.
        found.sort(key=lambda pair: (pair[0].badge.rank, pair[0].number))
    page, pages = page_of(view.query, len(found), most)
    axis = timeline_of(snapshot, view.query)
    shows_path = snapshot.result is not None and len(snapshot.critical_path) > 1
    rows = [
        {
            "summary": shown,
            "bars": axis.bars(worker),
            "label": f"Timeline of worker {shown.number}: {shown.badge.word}",
            "critical": shows_path and worker.is_critical,
        }
        for shown, worker in found[(page - 1) * most : page * most]
    ]
    in_use: tuple[str, str] | None = None
    if used := [view.usage[worker.number] for worker in summary.workers if worker.memory]:
        cpus, memory = sum(u.cpus or 0 for u in used), sum(u.memory or 0 for u in used)
        in_use = f"{cpus:.0%} CPU", size(memory)
    values = run_values(view, tab="", summary=summary)
    results = [worker.result for worker in snapshot.workers if worker.result]
    tokens = sum(result.tokens or 0 for result in results)
    values |= {
        "tokens": f"{tokens:,} tokens" if tokens else "no tokens reported",
        "files": sum(result.file_count for result in results),
        "insertions": sum(result.insertions for result in results),
        "deletions": sum(result.deletions for result in results),
        "rows": rows,
        "page": page,
        "pages": pages,
        "state": state,
        "axis": axis,
        "zoom": zoom_of(axis),
        "legend": legend(snapshot.workers),
        "alerts": [worker for worker in summary.workers if worker.alert][:_MOST_ALERTS],
        "merged": () if snapshot.is_live else _merges(view),
        "died": snapshot.state is RunState.DIED,
        "slots": f"{snapshot.slots} at once" if snapshot.slots else "",
        "search": search,
        "shows_models": len({worker.model for worker in summary.workers}) > 1,
        "shows_idle": view.query.get("idle") == "show",
        "in_use": in_use,
    }
    return view.page("overview.html", values, moves=True)


def _merges(view: View) -> list[tuple[str, list[int]]]:
    """Return each branch into which workers of the run were merged, with their numbers."""
    found: dict[str, set[int]] = {}
    for landed in merges(view):
        found.setdefault(one_line(landed.branch), set()).update(landed.workers)
    return [(branch, sorted(numbers)) for branch, numbers in found.items()]


def _texts(worker: WorkerSummary) -> Sequence[str]:
    return (str(worker.number), worker.title, worker.task, worker.model, worker.badge.word,
            worker.badge.group, worker.reason, worker.waiting, worker.alert)  # fmt: skip
