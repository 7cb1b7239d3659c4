"""Texts that pages show for runs and workers: titles, states, and tones that select colours."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from orchestrator.base.events import WorkerMeasured
from orchestrator.base.files.tail import end_of
from orchestrator.base.results import RunResult, ended_word
from orchestrator.base.text.quantities import count, short_duration, size
from orchestrator.base.text.sanitize import last_output_line, one_line
from orchestrator.faces.web.rendering import dollars
from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.states import NEEDS_ATTENTION, RunState
from orchestrator.state.record.worker_view import TALKING, WorkerView

Tone = Literal["success", "danger", "warning", "active", "idle", "neutral"]
WORST_FIRST: Sequence[Tone] = ("danger", "warning", "active", "idle", "neutral", "success")
"""Order in which lists show and count the workers of each tone (class of a state)."""


@dataclass(frozen=True)
class Badge:
    """A state in a word, and the tone (such as `danger`) that selects its colour."""

    word: str
    tone: Tone

    @property
    def group(self) -> str:
        """The name under which lists count and filter workers or runs with this state."""
        return {"active": "running", "idle": "waiting"}.get(self.tone, self.word.lower())

    @property
    def rank(self) -> int:
        """Position of the state among all states, worst first."""
        return WORST_FIRST.index(self.tone)


_TONES: Mapping[str, Tone] = {
    "success": "success",
    "partial": "warning",
    NEEDS_ATTENTION: "warning",
    "failed": "danger",
    "timeout": "danger",
    "died": "danger",
    "cancelled": "neutral",
    "skipped": "neutral",
    "queued": "idle",
    "retrying": "idle",
}


def badge_of(word: str) -> Badge:
    """Return the badge of a run's or worker's state, from the name of the state."""
    return Badge(word.capitalize(), _TONES.get(word, "active"))


def run_badge(result: RunResult | None, *, is_live: bool) -> Badge:
    """Return the state of a run as a word with a tone (such as `danger`) for its colour."""
    if is_live:
        return badge_of(RunState.RUNNING.value)
    return badge_of(
        RunState.DIED.value if result is None else ended_word(result.status, result.results)
    )


NOTHING: Mapping[int, WorkerMeasured] = {}
"""No measurements."""
TITLE = 160
"""Maximum number of characters of a task that a list shows."""


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
    snapshot: RunView, *, measured: Mapping[int, WorkerMeasured] = NOTHING
) -> RunSummary:
    """Return the texts and numbers that pages show for a run.

    Args:
        snapshot: The run.
        measured: The latest measurements of workers.
    """
    waiting = snapshot.reasons_to_wait()
    workers = tuple(
        _summarize_worker(worker, waiting.get(number, ""), measured.get(number))
        for number, worker in snapshot.by_number.items()
    )
    title = one_line(snapshot.name or "", limit=TITLE)
    if not title:
        tasks = list(dict.fromkeys(worker.task for worker in workers)) or [""]
        more = f" and {count(len(tasks) - 1, 'other task')}" if len(tasks) > 1 else ""
        title = f"{tasks[0]}{more}"
    numbers = Counter(worker.badge.group for worker in workers)
    badges = {worker.badge.group: worker.badge for worker in workers}
    ordered = sorted(badges.items(), key=lambda item: (item[1].rank, item[0]))
    return RunSummary(
        run_id=snapshot.run_id,
        title=title,
        badge=badge_of(snapshot.word),
        is_live=snapshot.is_live,
        began=snapshot.started_at,
        elapsed=short_duration(max(snapshot.duration, 0)),
        since=snapshot.started_at if snapshot.is_live else None,
        cost=dollars(snapshot.known_cost),
        done=sum(worker.is_over for worker in workers),
        counts=tuple(Count(badge.tone, numbers[group], group) for group, badge in ordered),
        attention=sum(bool(worker.alert) for worker in workers),
        workers=workers,
    )


def _summarize_worker(
    worker: WorkerView, waiting: str, measured: WorkerMeasured | None
) -> WorkerSummary:
    result, spec, attention = worker.result, worker.spec, worker.attention
    is_talking = worker.is_live and worker.state in TALKING
    used = measured if is_talking else None
    checks = worker.checks
    return WorkerSummary(
        number=spec.worker_id,
        title=one_line(spec.name or spec.task, limit=TITLE),
        task=one_line(spec.task, limit=TITLE),
        model=one_line(spec.model_name, limit=60),
        badge=badge_of(worker.word),
        reason=worker.reason.sentence if worker.reason else "",
        message=_message(worker),
        waiting=one_line(waiting, limit=300),
        alert=one_line(attention.detail, limit=300) if attention else "",
        waits=attention is not None and attention.trigger == "needs_input",
        since=worker.started_at if is_talking else None,
        elapsed=short_duration(max(worker.seconds, 0)) if worker.started_at else "",
        cost=dollars(worker.cost),
        has_cost=worker.cost is not None,
        files=result.file_count if result else None,
        insertions=result.insertions if result else 0,
        deletions=result.deletions if result else 0,
        attempts=result.attempts if result else worker.attempt,
        steps=count(worker.steps, "step") if worker.steps else "",
        checks=f"{sum(check.passed for check in checks)}/{len(checks)}" if checks else "",
        is_over=result is not None,
        cpus="" if used is None or used.cpus is None else f"{used.cpus:.0%}",
        memory=size(used.memory) if used and used.memory else "",
        files_now=used.files if used else None,
    )


def _message(worker: WorkerView) -> str:
    result = worker.result
    if result is not None:
        message = result.message or ""
        return "" if message == result.reason else one_line(message, limit=300)
    if not worker.is_live or worker.state not in TALKING:
        return ""
    newest = max(
        (worker.directory / name for name in ("stdout.log", "stderr.log")),
        key=lambda path: path.stat().st_mtime_ns if path.is_file() else 0,
    )
    return last_output_line(end_of(newest).decode("utf-8", "replace"))
