"""The pages of a run: overview, graph, conflicts, costs, events and details, and their list."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.results import Status
from orchestrator.base.text.quantities import count, size
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.workflow.drawing.graph import Node
from orchestrator.config.workflow.drawing.svg import svg
from orchestrator.faces.web.compare_page import compare_page, judgement_page
from orchestrator.faces.web.event_rows import event_rows
from orchestrator.faces.web.forms import merges
from orchestrator.faces.web.rendering import UNKNOWN, Page, dollars, moment
from orchestrator.faces.web.settings import settings_of_run
from orchestrator.faces.web.summaries import WORST_FIRST, WorkerSummary, badge_of
from orchestrator.faces.web.timeline import legend, timeline_of, zoom_of
from orchestrator.faces.web.view import View, contains, page_of, run_values, search_of, summary_of
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, read_branches
from orchestrator.review.landing.conflict_matrix import Conflicts, Pair, find_conflicts
from orchestrator.state.record.states import RunState
from orchestrator.state.record.worker_view import WorkerView

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


def graph_page(view: View) -> Page | None:
    """Return the page with the graph of a run's workflow; None if the run has no workflow."""
    plan = view.plan
    if plan is None or plan.workflow is None:
        return None
    tones = {worker.name: badge_of(worker.word).tone for worker in view.snapshot.workers}

    def look(node: Node) -> str:
        found = {tones.get(task.id, "neutral") for task in node.tasks}
        return next(tone for tone in WORST_FIRST if tone in found)

    # The drawing escapes all text, and is generated by this program otherwise.
    drawing = Markup(svg(plan.workflow, look=look).partition("\n")[2])  # noqa: S704
    return view.page("graph.html", run_values(view, tab="graph") | {"drawing": drawing})


def costs_page(view: View) -> Page:
    """Return the page with the costs of a run's workers."""
    values, snapshot = run_values(view, tab="costs"), view.snapshot
    most = max((worker.cost or 0.0 for worker in snapshot.workers), default=0.0)
    unknown = sum(worker.cost is None for worker in snapshot.workers)
    by_model: dict[str, list[WorkerView]] = defaultdict(list)
    for worker in snapshot.workers:
        by_model[worker.spec.model_name].append(worker)
    most_listed = len(snapshot.workers) if view.site.is_static else PAGE
    page, pages = page_of(view.query, len(snapshot.workers), most_listed)
    rows = [
        {
            "number": worker.worker_id,
            "title": one_line(worker.spec.name or worker.spec.task, limit=100),
            "model": one_line(worker.spec.model_name, limit=60),
            "steps": _number(worker.steps or None),
            "tokens": _number(worker.result.tokens if worker.result else None),
            "cost": dollars(worker.cost),
            "share": f"{100 * worker.cost / most:.1f}%" if worker.cost and most else "",
        }
        for worker in snapshot.workers[(page - 1) * most_listed : page * most_listed]
    ]
    models = []
    for model, workers in by_model.items():
        costs = [worker.cost for worker in workers if worker.cost is not None]
        models.append({
            "model": one_line(model, limit=60),
            "workers": len(workers),
            "passed": sum(worker.status is Status.SUCCESS for worker in workers),
            "cost": dollars(sum(costs) if costs else None),
        })  # fmt: skip
    values |= {
        "page": page,
        "pages": pages,
        "rows": rows,
        "total": {
            "steps": _total(worker.steps or None for worker in snapshot.workers),
            "tokens": _total(worker.result.tokens for worker in snapshot.workers if worker.result),
            "cost": dollars(snapshot.known_cost),
        },
        "models": models,
        "note": f"The cost of {count(unknown, 'worker')} is not known." if unknown else "",
    }
    return view.page("costs.html", values)


def _number(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def _total(numbers: Any) -> str:  # noqa: ANN401 - any iterable of numbers or None
    known = [number for number in numbers if number is not None]
    return _number(sum(known) if known else None)


def events_page(view: View) -> Page:
    """Return the page with the latest events of a run."""
    values, snapshot = run_values(view, tab="events"), view.snapshot
    rows = event_rows(snapshot.events, began=snapshot.started_at)
    values |= {"events": rows, "events_cut": len(rows) < len(snapshot.events)}
    return view.page("events.html", values)


def details_page(view: View) -> Page:
    """Return the page with the settings of a run, without the values of environment variables."""
    values, snapshot = run_values(view, tab="details"), view.snapshot
    facts = [
        ("Run", snapshot.run_id),
        ("Started", moment(snapshot.started_at)),
        ("Base commit", snapshot.base),
        ("Checkout", one_line(str(snapshot.top), limit=300)),
        ("Engine", one_line(snapshot.engine)),
    ]
    if view.plan is not None:
        facts += settings_of_run(view.plan)
    values["facts"] = facts
    return view.page("details.html", values)


MOST_COMPARED = 40
"""Maximum number of workers that the page compares with each other."""
_FILES = 8


def conflicts_page(view: View) -> Page:
    """Return the page that shows which branches of a run can be merged with each other."""
    values = run_values(view, tab="conflicts") | {
        "problem": "", "names": {}, "columns": (), "matrix": (), "pairs": (),
        "conflicting": 0, "head": "",
    }  # fmt: skip
    try:
        found = _conflicts(view)
    except OrchestratorError as error:
        return view.page("conflicts.html", values | {"problem": one_line(str(error), limit=500)})
    if found is not None and found.workers:
        names = {0: "Base"} | {
            change.worker_id: f"{change.worker_id} {one_line(change.name or '', limit=24)}".strip()
            for change in found.changes
        }
        pairs = {(pair.a, pair.b): pair for pair in found.pairs}
        numbers = list(found.workers)
        rows = [
            {
                "name": names[row],
                "cells": [
                    _cell(pairs.get((min(row, column), max(row, column))), row, column)
                    for column in numbers
                ],
            }
            for row in (0, *numbers)
        ]
        pairs_to_show = [pair for pair in found.pairs if pair.files or not pair.is_clean]
        overlaps = [
            {
                "tone": "success" if pair.is_clean else "danger",
                "names": f"{names[pair.a]} + {names[pair.b]}",
                "what": "changed the same files, and can be merged"
                if pair.is_clean
                else f"conflict ({pair.kind})",
                "files": [one_line(path, limit=200) for path in pair.files[:_FILES]],
                "more": max(0, len(pair.files) - _FILES),
            }
            for pair in sorted(pairs_to_show, key=lambda pair: pair.is_clean)
        ]
        values |= {
            "names": names,
            "columns": numbers,
            "matrix": rows,
            "pairs": overlaps,
            "conflicting": len(found.conflicting),
            "head": found.base[:12],
        }
    return view.page("conflicts.html", values)


def _conflicts(view: View) -> Conflicts | None:
    ended = [worker.spec.worker_id for worker in view.snapshot.workers if worker.result]
    if not ended:
        return None
    repository = view.repository
    run_id = view.snapshot.run_id
    # Counted before git reads the commits, which takes a process for each worker.
    number = sum(bool(item.result and item.result.file_count) for item in view.snapshot.workers)
    if number > MOST_COMPARED:
        raise ConfigError(
            f"{number} workers changed files: the page compares at most {MOST_COMPARED}",
            key="comparison.too-many",
            hint=f"compare the workers in a terminal: `orchestrator conflicts {run_id}`",
        )
    branches = [
        branch for branch in read_branches(repository, run_id).branches if not branch.is_empty
    ]
    ready = tuple(branch for branch in branches if branch.worker_id in ended)
    return _compare(repository, ready, run_id, repository.resolve("HEAD"))


@lru_cache(maxsize=8)
def _compare(
    repository: Repository, branches: tuple[Branch, ...], run_id: str, base: str
) -> Conflicts:
    return find_conflicts(repository, branches, run_id=run_id, base=base)


def _cell(pair: Pair | None, row: int, column: int) -> dict[str, str]:
    if row == column or pair is None:
        return {"tone": "none", "word": "", "title": ""}
    if not pair.is_clean:
        return {"tone": "bad", "word": pair.kind, "title": f"conflict ({pair.kind})"}
    if pair.files:
        return {
            "tone": "both",
            "word": "ok",
            "title": f"both changed {count(len(pair.files), 'file')}",
        }
    return {"tone": "good", "word": "ok", "title": "can be merged"}


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
"""The functions that create the pages of a run, by the last part of the address."""
