"""Texts that pages show for runs and workers: titles, states, and tones that select colours."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypedDict

from orchestrator.events import WorkerMeasured
from orchestrator.files.tail import end_of
from orchestrator.results import WorkerResult
from orchestrator.state.history import WorkerState, word_of
from orchestrator.text.quantities import size, slots_in_use
from orchestrator.text.sanitize import last_output_line, one_line
from orchestrator.web.badges import Badge, Tone, badge_of, run_badge
from orchestrator.web.formats import dollars, plural, short_duration
from orchestrator.web.live_usage import NOTHING
from orchestrator.web.reader import Snapshot, WorkerRecord

TITLE = 160
"""Maximum number of characters of a task that a list shows."""
_TALKING = frozenset({WorkerState.RUNNING, WorkerState.STOPPING})


class _Usage(TypedDict):
    """Resources that a running container uses, as fields of `WorkerSummary`."""

    cpus: str
    memory: str
    files_now: int | None


@dataclass(frozen=True, kw_only=True)
class WorkerSummary:
    """The texts and numbers that pages show for a worker."""

    number: int
    title: str
    """The id of the worker's task in a workflow, else the task."""
    task: str
    model: str
    badge: Badge
    reason: str
    """Why the worker did not succeed, in words; empty otherwise."""
    message: str
    """The worker's message or last line of output; empty if there is none."""
    waiting: str
    """Why the worker does not start yet; empty if it has started, or if that is unknown."""
    alert: str
    """Why a person should look at the worker now; empty otherwise."""
    waits: bool
    """Whether the worker waits for the user's answer to a question; `alert` shows the question."""
    since: datetime | None
    """Time when the agent started, while the agent runs; None otherwise."""
    elapsed: str
    cost: str
    has_cost: bool
    files: int | None
    insertions: int
    deletions: int
    attempts: int
    steps: str
    """Number of the agent's steps so far, such as `12 steps`; empty if unknown."""
    checks: str
    """Number of passed checks and of all checks, such as `2/3`; empty without checks."""
    is_over: bool
    cpus: str
    """Share of one CPU in use, such as `150%`; empty if the worker is not measured."""
    memory: str
    files_now: int | None
    """Number of files that a running worker has changed so far; None if unknown."""


class Count(NamedTuple):
    """Number of a run's workers in one state."""

    tone: Tone
    number: int
    group: str
    """Name of the state, as in `Badge.group`."""

    @property
    def word(self) -> str:
        """The name of the state after the number: `2 failed`, `2 need attention`."""
        many = self.number > 1 and self.group == "needs attention"
        return "need attention" if many else self.group


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The texts and numbers that lists and headings show for a run."""

    run_id: str
    title: str
    badge: Badge
    is_live: bool
    began: datetime
    elapsed: str
    since: datetime | None
    """Start of the run, while the run is live; None otherwise."""
    cost: str
    done: int
    counts: tuple[Count, ...]
    """The states of the run's workers, worst first."""
    attention: int
    """Number of workers that a person should look at now."""
    workers: tuple[WorkerSummary, ...]


def summarize_run(
    snapshot: Snapshot,
    *,
    now: datetime,
    name: str | None = None,
    measured: Mapping[int, WorkerMeasured] = NOTHING,
) -> RunSummary:
    """Return the texts and numbers that pages show for a run.

    Args:
        snapshot: The run.
        now: The current time.
        name: Name of the run's workflow; None without a workflow.
        measured: The latest measurements of workers.
    """
    workers = tuple(
        summarize_worker(one, snapshot, now=now, measured=measured.get(one.spec.worker_id))
        for one in snapshot.workers
    )
    ended = now if snapshot.is_live else snapshot.last
    result = snapshot.result
    seconds = result.duration if result else (ended - snapshot.began).total_seconds()
    return RunSummary(
        run_id=snapshot.run_id,
        title=_run_title(workers, name),
        badge=run_badge(snapshot.result, is_live=snapshot.is_live),
        is_live=snapshot.is_live,
        began=snapshot.began,
        elapsed=short_duration(max(seconds, 0)),
        since=snapshot.began if snapshot.is_live else None,
        cost=_sum_of_costs(snapshot.workers),
        done=sum(one.is_over for one in workers),
        counts=_counts(workers),
        attention=sum(bool(one.alert) for one in workers),
        workers=workers,
    )


def _run_title(workers: Sequence[WorkerSummary], name: str | None) -> str:
    if name:
        return one_line(name, limit=TITLE)
    tasks = list(dict.fromkeys(one.task for one in workers))
    rest = f" and {plural(len(tasks) - 1, 'other task')}" if len(tasks) > 1 else ""
    return (tasks[0] if tasks else "") + rest


def _sum_of_costs(workers: Sequence[WorkerRecord]) -> str:
    known = [cost for one in workers if (cost := cost_of(one)) is not None]
    return dollars(sum(known), known=bool(known))


def cost_of(worker: WorkerRecord) -> float | None:
    """Return what a worker has cost so far in USD; None if unknown."""
    if worker.result is not None:
        return worker.result.cost if worker.result.cost_known else None
    return worker.cost


def _counts(workers: Sequence[WorkerSummary]) -> tuple[Count, ...]:
    numbers = Counter(one.badge.group for one in workers)
    badges = {one.badge.group: one.badge for one in workers}
    ordered = sorted(badges.items(), key=lambda one: (one[1].rank, one[0]))
    return tuple(Count(badge.tone, numbers[group], group) for group, badge in ordered)


def summarize_worker(
    worker: WorkerRecord,
    snapshot: Snapshot,
    *,
    now: datetime,
    measured: WorkerMeasured | None = None,
) -> WorkerSummary:
    """Return the texts and numbers that pages show for a worker."""
    result, spec = worker.result, worker.spec
    runs = snapshot.is_live and result is None and worker.started_at is not None
    since = worker.started_at if runs and worker.state in _TALKING else None
    seconds = result.duration if result else (now - since).total_seconds() if since else None
    if result is not None and result.started_at is None:
        seconds = None
    cost = cost_of(worker)
    return WorkerSummary(
        number=spec.worker_id,
        title=one_line(spec.name or spec.task, limit=TITLE),
        task=one_line(spec.task, limit=TITLE),
        model=one_line(spec.model_name, limit=60),
        badge=worker_badge(worker, snapshot),
        reason=result.reason.sentence if result and result.reason else "",
        message=_message(worker, snapshot),
        waiting=_waiting(worker, snapshot),
        alert=_alert(worker, snapshot),
        waits=worker.alert is not None and worker.alert.trigger == "needs_input",
        since=since,
        elapsed="" if seconds is None else short_duration(max(seconds, 0)),
        cost=dollars(cost or 0, known=cost is not None),
        has_cost=cost is not None,
        files=result.file_count if result else None,
        insertions=result.insertions if result else 0,
        deletions=result.deletions if result else 0,
        attempts=result.attempts if result else (worker.phases[-1].attempt if worker.phases else 1),
        steps=_steps(worker),
        checks=_checks(result),
        is_over=result is not None,
        **_usage(measured if since else None),
    )


def _usage(measured: WorkerMeasured | None) -> _Usage:
    if measured is None:
        return {"cpus": "", "memory": "", "files_now": None}
    return {
        "cpus": "" if measured.cpus is None else f"{measured.cpus:.0%}",
        "memory": size(measured.memory) if measured.memory else "",
        "files_now": measured.files,
    }


def worker_badge(worker: WorkerRecord, snapshot: Snapshot) -> Badge:
    """Return the state of a worker as a word with a tone (such as `danger`) for its colour."""
    if worker.result is None and _alert(worker, snapshot):
        return Badge("Needs attention", "warning")
    return badge_of(word_of(worker.state, worker.result, is_live=snapshot.is_live))


def _waiting(worker: WorkerRecord, snapshot: Snapshot) -> str:
    if worker.result is not None or not snapshot.is_live:
        return ""
    if worker.waits:
        return one_line(worker.waits, limit=300)
    is_next = worker.state is WorkerState.QUEUED and snapshot.is_full
    return slots_in_use(snapshot.slots or 0) if is_next else ""


def _alert(worker: WorkerRecord, snapshot: Snapshot) -> str:
    if worker.alert is None or not snapshot.is_live or worker.state not in _TALKING:
        return ""
    return one_line(worker.alert.detail, limit=300)


def _message(worker: WorkerRecord, snapshot: Snapshot) -> str:
    result = worker.result
    if result is not None:
        message = result.message or ""
        return "" if message == result.reason else one_line(message, limit=300)
    if not snapshot.is_live or worker.state not in _TALKING:
        return ""
    directory = snapshot.directory.worker(worker.spec.worker_id)
    newest = max(
        (directory / name for name in ("stdout.log", "stderr.log")),
        key=lambda path: path.stat().st_mtime_ns if path.is_file() else 0,
    )
    return last_output_line(end_of(newest).decode("utf-8", "replace"))


def _steps(worker: WorkerRecord) -> str:
    number = worker.result.steps if worker.result else worker.steps
    return plural(number, "step") if number else ""


def _checks(result: WorkerResult | None) -> str:
    if result is None or not result.checks:
        return ""
    return f"{sum(one.passed for one in result.checks)}/{len(result.checks)}"
