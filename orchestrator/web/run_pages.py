"""The pages of runs: the list, the overview of a run, its graph, costs, events and details."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from orchestrator.results import Status
from orchestrator.state.history import RunState
from orchestrator.state.run_record import RunRecord
from orchestrator.text.sanitize import one_line
from orchestrator.web.event_rows import event_rows
from orchestrator.web.formats import UNKNOWN, ago, dollars, moment, octets, plural, short_duration
from orchestrator.web.library import PAGE, Library, ListedRun
from orchestrator.web.looks import RunLook, cost_of, look_at_run, now, worker_badge
from orchestrator.web.reader import LIVE, Snapshot, WorkerRecord
from orchestrator.web.shell import Page, Shell, render
from orchestrator.web.timeline import axis_of, legend
from orchestrator.workflow.drawing.graph import Node
from orchestrator.workflow.drawing.svg import svg
from orchestrator.workflow.model import Workflow
from orchestrator.workflow.timing import summarise

_TABS = (
    ("", "Overview"),
    ("graph", "Graph"),
    ("judgement", "Judgement"),
    ("conflicts", "Conflicts"),
    ("costs", "Costs"),
    ("events", "Events"),
    ("details", "Details"),
)
TICK = 2
"""Seconds between two changes of a page whose bars move."""
_WORST = ("danger", "warning", "active", "idle", "neutral", "success")


def runs_page(library: Library, shell: Shell, *, page: int | None = 1) -> Page:
    """Return the list of runs, newest first.

    Args:
        library: The runs.
        shell: What surrounds the page.
        page: Number of the page of the list, from 1; None: all runs on one page.
    """
    every = library.runs()
    last = max(1, -(-len(every) // PAGE)) if page else 1
    page = min(max(page or 1, 1), last)
    at = now()
    shown = library.listed(every[(page - 1) * PAGE : page * PAGE] if last > 1 else every)
    rows = []
    for run in shown:
        snapshot = library.snapshot(run)
        look = look_at_run(snapshot, now=at, name=_name(library.plan(run.directory)))
        rows.append(
            {
                "repository": run.repository,
                "look": look,
                "ago": ago(look.began, at),
                "began": moment(look.began),
            }
        )
    values = {"runs": rows, "page": page, "pages": last, "repositories": [*library.repositories]}
    return render("runs.html", shell, values, version=runs_version(library, page), live=True)


def runs_version(library: Library, page: int) -> str:
    """Return a text that changes whenever the list of runs changes."""
    every = library.runs()
    shown = library.listed(every[(page - 1) * PAGE : page * PAGE])
    marks = "_".join(library.version(run) for run in shown)
    return hashlib.sha256(f"{len(every)}-{marks}".encode()).hexdigest()


def _name(plan: RunRecord | None) -> str | None:
    return plan.workflow.name if plan and plan.workflow else None


@dataclass(frozen=True)
class View:
    """A run that is being looked at."""

    library: Library
    run: ListedRun
    snapshot: Snapshot
    shell: Shell

    @property
    def plan(self) -> RunRecord | None:
        """The whole plan of the run; None if it has an unknown format."""
        return self.library.plan(self.run.directory)

    def page(self, template: str, values: Mapping[str, object], *, moves: bool = False) -> Page:
        """Render a page of the run.

        Args:
            template: Name of the template.
            values: Variables of the template.
            moves: Whether the page changes as time passes while the run is live.
        """
        version = self.snapshot.version + (tick(self.snapshot.version) if moves else "")
        return render(template, self.shell, values, version=version, live=self.snapshot.is_live)


def tick(version: str) -> str:
    """Return the part of a page's version that changes as time passes, while a run is live."""
    return f"-{int(now().timestamp()) // TICK}" if version.startswith(LIVE) else ""


def look_of(view: View) -> RunLook:
    """Return how the run looks now."""
    return look_at_run(view.snapshot, now=now(), name=_name(view.plan))


def run_values(view: View, *, tab: str) -> dict[str, object]:
    """Return the variables that all pages of a run have."""
    at = now()
    plan, run, snapshot = view.plan, view.run, view.snapshot
    look = look_at_run(snapshot, now=at, name=_name(plan))
    absent = _absent_tabs(view)
    return {
        "repository": run.repository,
        "look": look,
        "base": snapshot.outline.base[:12],
        "began": moment(look.began),
        "ago": ago(look.began, at),
        "current": tab,
        "tabs": [(name, title) for name, title in _TABS if name not in absent],
    }


def _absent_tabs(view: View) -> set[str]:
    absent = set()
    if view.plan is None or view.plan.workflow is None:
        absent.add("graph")
    if next(view.snapshot.directory.path.glob("judgement-*.json"), None) is None:
        absent.add("judgement")
    return absent


def overview_page(view: View) -> Page:
    """Return the overview of a run: its workers on a timeline."""
    snapshot, look = view.snapshot, look_of(view)
    axis = axis_of(snapshot)
    critical = _critical_path(snapshot, view.plan)
    results = [worker.result for worker in snapshot.workers if worker.result]
    tokens = sum(result.tokens or 0 for result in results)
    at_once = f"{snapshot.slots} at once" if snapshot.slots else ""
    values = run_values(view, tab="") | {
        "rows": [
            {
                "look": one,
                "bars": axis.bars(worker, snapshot),
                "label": f"Timeline of worker {one.number}: {one.badge.word}",
                "critical": worker.spec.name in critical,
            }
            for one, worker in zip(look.workers, snapshot.workers, strict=True)
        ],
        "ticks": axis.ticks,
        "legend": legend(snapshot.workers),
        "alerts": [one for one in look.workers if one.alert],
        "died": snapshot.state is RunState.DIED,
        "slots": at_once,
        "tokens": f"{tokens:,} tokens" if tokens else "no tokens reported",
        "files": sum(result.file_count for result in results),
        "insertions": sum(result.insertions for result in results),
        "deletions": sum(result.deletions for result in results),
    }
    return view.page("overview.html", values, moves=True)


def _critical_path(snapshot: Snapshot, plan: RunRecord | None) -> frozenset[str | None]:
    if snapshot.result is None or plan is None or plan.workflow is None:
        return frozenset()
    result = snapshot.result
    path = summarise(
        result.results, wall=result.duration, slots=snapshot.slots or 1, workflow=plan.workflow
    ).critical_path
    return frozenset(path) if len(path) > 1 else frozenset()


def graph_page(view: View) -> Page | None:
    """Return the graph of a run's workflow; None if the run has no workflow."""
    plan = view.plan
    if plan is None or plan.workflow is None:
        return None
    values = run_values(view, tab="graph")
    values["drawing"] = _drawing(plan.workflow, view.snapshot)
    return view.page("graph.html", values)


def _drawing(workflow: Workflow, snapshot: Snapshot) -> Markup:
    tones = {worker.spec.name: worker_badge(worker, snapshot).tone for worker in snapshot.workers}

    def look(node: Node) -> str:
        found = {tones.get(task.id, "neutral") for task in node.tasks}
        return next(tone for tone in _WORST if tone in found)

    # The drawing escapes all text, and is generated by this program otherwise.
    return Markup(svg(workflow, look=look).partition("\n")[2])  # noqa: S704


def costs_page(view: View) -> Page:
    """Return what the workers of a run cost."""
    values, snapshot = run_values(view, tab="costs"), view.snapshot
    costs = {one.spec.worker_id: cost_of(one) for one in snapshot.workers}
    known = [cost for cost in costs.values() if cost is not None]
    most = max(known, default=0.0)
    unknown = len(costs) - len(known)
    values |= {
        "rows": [_cost_row(one, costs[one.spec.worker_id], most) for one in snapshot.workers],
        "total": {
            "steps": _total(_steps(one) for one in snapshot.workers),
            "tokens": _total(one.result.tokens for one in snapshot.workers if one.result),
            "cost": dollars(sum(known), known=bool(known)),
        },
        "models": _by_model(snapshot.workers),
        "note": f"The cost of {plural(unknown, 'worker')} is not known." if unknown else "",
    }
    return view.page("costs.html", values)


def _cost_row(worker: WorkerRecord, cost: float | None, most: float) -> dict[str, object]:
    tokens = worker.result.tokens if worker.result else None
    return {
        "number": worker.spec.worker_id,
        "title": one_line(worker.spec.name or worker.spec.task, limit=100),
        "model": one_line(worker.spec.model_name, limit=60),
        "steps": _number(_steps(worker)),
        "tokens": _number(tokens),
        "cost": dollars(cost or 0, known=cost is not None),
        "share": f"{100 * cost / most:.1f}%" if cost and most else "",
    }


def _steps(worker: WorkerRecord) -> int | None:
    return (worker.result.steps if worker.result else worker.steps) or None


def _number(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def _total(numbers: Any) -> str:  # noqa: ANN401 - any iterable of numbers or None
    known = [number for number in numbers if number is not None]
    return _number(sum(known) if known else None)


def _by_model(workers: Sequence[WorkerRecord]) -> list[Mapping[str, object]]:
    groups: dict[str, list[WorkerRecord]] = defaultdict(list)
    for worker in workers:
        groups[worker.spec.model_name].append(worker)
    return [_model_row(model, members) for model, members in groups.items()]


def _model_row(model: str, members: Sequence[WorkerRecord]) -> Mapping[str, object]:
    known = [cost for one in members if (cost := cost_of(one)) is not None]
    statuses = [one.result.status for one in members if one.result is not None]
    return {
        "model": one_line(model, limit=60),
        "workers": len(members),
        "passed": statuses.count(Status.SUCCESS),
        "cost": dollars(sum(known), known=bool(known)),
    }


def events_page(view: View) -> Page:
    """Return the latest events of a run."""
    values, snapshot = run_values(view, tab="events"), view.snapshot
    rows = event_rows(snapshot.events, began=snapshot.began)
    values |= {"events": rows, "events_cut": len(rows) < len(snapshot.events)}
    return view.page("events.html", values)


def details_page(view: View) -> Page:
    """Return the settings of a run, without the values of variables."""
    values, snapshot = run_values(view, tab="details"), view.snapshot
    facts = [
        ("Run", snapshot.run_id),
        ("Started", moment(snapshot.began)),
        ("Base commit", snapshot.outline.base),
        ("Checkout", one_line(str(snapshot.outline.top), limit=300)),
        ("Engine", one_line(snapshot.outline.engine)),
    ]
    if view.plan is not None:
        facts += _settings(view.plan)
    values["facts"] = facts
    return view.page("details.html", values)


def _settings(plan: RunRecord) -> list[tuple[str, str]]:
    config = plan.config
    limit = config.timeout_per_worker
    memory = config.limits.memory
    found = [
        ("Agent program", config.agent_cli),
        ("Image", config.image or "of the agent program"),
        ("Workers at once", "as many as fit" if config.auto_workers else str(config.workers)),
        ("Time limit per worker", short_duration(limit) if limit else "none"),
        ("Memory per worker", octets(memory) if memory else "not limited"),
        ("Network", config.isolation.network),
        ("Budget per worker", _budget(config.budget_per_worker)),
        ("Budget of the run", _budget(config.budget_total)),
    ]
    return [(name, one_line(str(value), limit=300)) for name, value in found]


def _budget(amount: float | None) -> str:
    return "none" if amount is None else dollars(amount)
