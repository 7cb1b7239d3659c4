"""The pages of a worker: log, diff, checks, events and details."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.text.quantities import duration, short_duration, size
from orchestrator.base.text.sanitize import lines, one_line
from orchestrator.faces.web.artifacts import artifacts_of, findings_of
from orchestrator.faces.web.comments import comment_values
from orchestrator.faces.web.diffs import Diff, diff_values, worker_diff
from orchestrator.faces.web.event_rows import event_rows
from orchestrator.faces.web.forms import continue_form, retry_form, takes_commands
from orchestrator.faces.web.logs import (
    Piece,
    find_error,
    find_lines,
    logs_of,
    read_at,
    read_before,
    read_end,
)
from orchestrator.faces.web.rendering import MINUS, Page, dollars, moment
from orchestrator.faces.web.settings import settings_of_worker
from orchestrator.faces.web.summaries import NOTHING
from orchestrator.faces.web.timeline import timeline_of
from orchestrator.faces.web.view import View, run_values, summary_of
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.state.worker.turns import is_queued

_LONGEST_TASK = 20_000
_MOST_TURNS = 50
_CONTINUED = {
    "session": "in the same session",
    "new_session": "in a new session, which the program began by itself",
    "prompt": "by a prompt with what happened before",
}
_MOST_LISTED = 100
"""Maximum number of workers that the page of a worker lists for navigation."""


def _values(view: View, worker: WorkerView, tab: str) -> dict[str, object]:
    # Measurements are only shown where they are kept current.
    summary = summary_of(view, view.usage if tab == "" else NOTHING)
    values, snapshot = run_values(view, tab=tab, summary=summary), view.snapshot
    number, result = worker.spec.worker_id, worker.result
    mine = next(worker for worker in summary.workers if worker.number == number)
    diff = f"+{mine.insertions} {MINUS}{mine.deletions}" if mine.files else ""
    checks = [("checks", "Checks", mine.checks)] if mine.checks else []
    many = len(result.turns) if result else 0
    turns = [("turns", "Turns", str(many))] if many else []
    handed = len(result.artifacts) if result else 0
    findings = [("findings", "Findings", str(handed or ""))] if has_findings(view, worker) else []
    place = summary.workers.index(mine)
    first = max(0, min(place - _MOST_LISTED // 2, len(summary.workers) - _MOST_LISTED))
    return values | {
        "worker": mine,
        "branch": one_line(worker.spec.branch),
        "bars": timeline_of(snapshot).bars(worker),
        "label": f"Timeline of worker {number}: {mine.badge.word}",
        "tabs": [
            ("", "Log", ""),
            ("diff", "Diff", diff),
            *turns,
            *checks,
            *findings,
            ("events", "Events", ""),
            ("details", "Details", ""),
        ],
        "rail": summary.workers[first : first + _MOST_LISTED],
        "rail_tab": tab if tab in ("diff", "events", "details") else "",
        "can_stop": snapshot.is_live and result is None,
        "can_continue": continue_form(view, worker) is not None,
        "can_retry": retry_form(view, worker) is not None,
        "takes_commands": takes_commands(view, worker),
        "is_queued": is_queued(view.run.directory, number),
    }


def log_page(
    view: View,
    worker: WorkerView,
    *,
    name: str = "",
    is_refresh: bool = False,
) -> Page | None:
    """Return the page with a log of a worker; None if there is no such log.

    The query's `before` is the offset in bytes at which the shown part ends, by default the end of
    the log; `at` is the offset of a line that the part contains; `find` is a text to search for,
    and `first=error` shows the first line that looks like an error.

    Args:
        view: The run.
        worker: The worker.
        name: Name of the log. Default: the first of stdout, stderr and setup that has output.
        is_refresh: Whether the page's script reads the log, so that the page omits its text.
    """
    snapshot = view.snapshot
    logs = logs_of(view.run.directory, worker.spec.worker_id)
    if name:
        chosen = next((log for log in logs if log.name == name), None)
        if chosen is None:
            return None
    else:
        first = [log for log in logs if log.name in ("stdout", "stderr", "setup")]
        chosen = next((log for log in first if log.size), next(iter(first), None))
    before, at = view.number("before"), view.number("at")
    wanted, piece, found = view.query.get("find", "")[:200], None, None
    if chosen is not None and view.query.get("first") == "error" and not is_refresh:
        error = find_error(chosen)
        at, found = (error.begin, [error]) if error else (at, [])
    if chosen is not None and is_refresh:
        piece = Piece((), 0, 0, chosen.size)
    elif chosen is not None and at is not None:
        piece = read_at(chosen, at)
    elif chosen is not None:
        piece = read_end(chosen) if before is None else read_before(chosen, before)
    is_cut = False
    if chosen is not None and wanted.strip() and not is_refresh:
        found, is_cut = find_lines(chosen, wanted)
    result = worker.result
    # The summary of a shell is the end of its output, which the log shows.
    is_shell = takes_commands(view, worker)
    values = _values(view, worker, "") | {
        "logs": logs if chosen else [],
        "chosen": chosen,
        "piece": piece,
        "wanted": wanted,
        "found": found,
        "found_more": is_cut,
        "follows": snapshot.is_live and result is None and before is None and at is None,
        "agent_summary": "" if is_shell or not result else lines(result.summary or "").strip(),
    }
    return view.page("log.html", values, moves=True)


def diff_page(view: View, worker: WorkerView) -> Page:
    """Return the page with the changes of a worker since it started, and comments on them."""
    values = _values(view, worker, "diff")
    diff, problem = Diff((), is_whole=True), ""
    try:
        diff = worker_diff(view, worker)
    except OrchestratorError as error:
        problem = one_line(str(error), limit=500)
    values |= diff_values(diff, view.query) | {"problem": problem}
    return view.page("diff.html", values | comment_values(view, worker, diff))


def turns_page(view: View, worker: WorkerView) -> Page | None:
    """Return the page with the messages to a worker and its answers; None if there are none."""
    turns = worker.result.turns if worker.result else []
    if not turns:
        return None
    said = [
        {
            "number": turn.number,
            "message": lines(_cut(turn.message or worker.spec.task)),
            "who": "Failed checks" if turn.cause == "checks" else "You",
            "answer": lines(_cut(turn.summary or "")).strip(),
            "how": _CONTINUED.get(turn.continued or "", ""),
            "ending": turn.status.value
            if turn.reason is None
            else f"{turn.status} ({turn.reason})",
            "cost": dollars(turn.cost) if turn.cost_known else "",
            "commit": one_line(turn.commit or "")[:12],
        }
        for turn in turns[-_MOST_TURNS:]
    ]
    values = _values(view, worker, "turns") | {"turns": said, "left_out": len(turns) - len(said)}
    return view.page("turns.html", values)


def checks_page(view: View, worker: WorkerView) -> Page:
    """Return the page with the checks of a worker's commit."""
    values = _values(view, worker, "checks")
    known = {log.path.name: log.name for log in logs_of(view.run.directory, worker.spec.worker_id)}
    values["checks"] = [
        {
            "name": one_line(check.name, limit=200),
            "passed": check.passed,
            "message": one_line(check.message or "", limit=500),
            "took": short_duration(check.duration),
            "log": known.get(Path(check.log).name, ""),
        }
        for check in (worker.result.checks if worker.result else [])
    ]
    return view.page("checks.html", values)


def has_findings(view: View, worker: WorkerView) -> bool:
    """Return whether a worker has findings or artifacts, besides its commits."""
    artifacts = worker.result.artifacts if worker.result else []
    return bool(artifacts or findings_of(view.run.directory, worker))


def findings_page(view: View, worker: WorkerView) -> Page | None:
    """Return the page with a worker's findings and artifacts; None if there are none."""
    if not has_findings(view, worker):
        return None
    directory = view.run.directory
    values = _values(view, worker, "findings") | {
        "findings": lines(findings_of(directory, worker)).strip(),
        "artifacts": [
            {
                "number": artifact.number,
                "path": one_line(artifact.path, limit=300),
                "amount": artifact.amount,
            }
            for artifact in artifacts_of(directory, worker)
        ],
    }
    return view.page("findings.html", values)


def worker_events_page(view: View, worker: WorkerView) -> Page:
    """Return the page with the latest events of a worker."""
    values = _values(view, worker, "events")
    rows = event_rows(
        view.snapshot.events, began=view.snapshot.started_at, worker=worker.spec.worker_id
    )
    values |= {"events": rows, "events_cut": False}
    return view.page("worker_events.html", values)


def worker_details_page(view: View, worker: WorkerView) -> Page:
    """Return the page with the task of a worker, and the details of its result."""
    values = _values(view, worker, "details")
    task = worker.spec.task
    values["task"] = lines(_cut(task))
    values["facts"] = _facts(worker)
    values["settings"] = settings_of_worker(view.plan, worker.spec.name) if view.plan else []
    return view.page("worker_details.html", values)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TASK else text[:_LONGEST_TASK] + "…"


def _facts(worker: WorkerView) -> list[tuple[str, str]]:
    spec, result = worker.spec, worker.result
    facts = [("Model", spec.model_name), ("Branch", spec.branch), ("Worktree", spec.directory)]
    if result is None:
        return [(name, one_line(value, limit=300)) for name, value in facts]
    if result.started_at is not None:
        facts.append(("Started", moment(result.started_at)))
        facts.append(("Ended", moment(result.started_at + timedelta(seconds=result.duration))))
    optional = {
        "Base": result.base,
        "Commit": result.commit,
        "Exit code": result.exit_code,
        "Steps": result.steps or None,
        "Tokens": f"{result.tokens:,}" if result.tokens is not None else None,
        "Cost": dollars(result.cost) if result.cost_known else None,
        "CPU time": duration(result.cpu_time) if result.cpu_time is not None else None,
        "Peak memory": size(result.peak_memory) if result.peak_memory else None,
        "Not counted": result.uncounted,
        "Limits reached": ", ".join(result.limits_hit) or None,
        "Limits not enforced": ", ".join(result.limits_unenforced) or None,
        "Also kept": ", ".join(result.kept_refs[:5]) or None,
    }
    facts += [(name, str(value)) for name, value in optional.items() if value is not None]
    return [(name, one_line(value, limit=500)) for name, value in facts]


WORKER_PAGES: Mapping[str, Callable[[View, WorkerView], Page | None]] = {
    "": log_page,
    "diff": diff_page,
    "turns": turns_page,
    "checks": checks_page,
    "findings": findings_page,
    "events": worker_events_page,
    "details": worker_details_page,
}
"""The functions that create the pages of a worker, by the last part of the address."""
