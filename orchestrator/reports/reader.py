"""Read the model of a run from the run's files."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from orchestrator.events import Event, Intervention, Notice, ProviderPaused, RunStarted
from orchestrator.judging.store import read_judgement
from orchestrator.reports.model import Pause, RunReport, WorkerReport
from orchestrator.reports.phase import Phase, PhaseKind
from orchestrator.reports.phases import phases_of
from orchestrator.results import Noticed, RunResult, WorkerResult
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.state.history import RunHistory, RunState, WorkerState, WorkerView
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import RunOutline, read_outline
from orchestrator.state.run_record import RunRecord, read_record
from orchestrator.workflow.timing import summarise

MOST_NOTICES = 100
"""Maximum number of notices in a report; of more notices, the first 50 and the last 50."""
MOST_ALERTS = 20
"""Maximum number of alerts of one live worker in a report; older alerts are left out."""


def read_run(directory: RunDirectory, *, now: datetime | None = None) -> RunReport | None:
    """Read the model of a run; return None if its record is missing or has an unknown format.

    Args:
        directory: The run's directory.
        now: End of the recorded time of a live run. Default: the current time.
    """
    outline = read_outline(directory)
    if outline is None:
        return None
    # The record of an older version may have settings that this version does not know.
    record = read_record(directory)
    with RunHistory(directory, outline) as history:
        # Before the events: a run that ends meanwhile is reported as live, with all its events.
        is_live = directory.is_live()
        events: list[Event] = []
        while batch := history.read():
            events += batch
        state = RunState.RUNNING if is_live else history.state()
        result = history.result() if state is RunState.FINISHED else None
        reading = _Reading(history, outline, events, record)
        return reading.report(state, result, now or datetime.now(UTC))


class _Reading:
    """The records of one run that were read from its files, to create the report model."""

    def __init__(
        self,
        history: RunHistory,
        outline: RunOutline,
        events: Sequence[Event],
        record: RunRecord | None,
    ) -> None:
        self._history = history
        self._outline = outline
        self._events = events
        self._record = record
        self._workflow = record.workflow if record is not None else None
        self._starts = [event for event in events if isinstance(event, RunStarted)]

    def report(self, state: RunState, result: RunResult | None, now: datetime) -> RunReport:
        started = self._starts[0].at if self._starts else self._outline.created_at
        # The web view adds notices to runs that have ended.
        own = [event.at for event in self._events if not isinstance(event, Notice)]
        last = max([started, *own[-1:]])
        until = max(now, started) if state is RunState.RUNNING else last
        workers = self._workers(until, live=state is RunState.RUNNING)
        duration = result.duration if result else (until - started).total_seconds()
        path = self._critical_path(workers, duration)
        return RunReport(
            run_id=self._history.run_id,
            name=self._workflow.name if self._workflow else None,
            state=state,
            status=result.status if result else None,
            base=self._outline.base,
            engine=self._outline.engine,
            top=self._outline.top,
            directory=self._history.directory.path,
            slots=self._starts[-1].slots if self._starts else len(workers),
            started_at=started,
            ended_at=last if result else None,
            until=until,
            duration=duration,
            workers=tuple(_marked(worker, path) for worker in workers),
            pauses=tuple(self._pauses(until)),
            notices=self._notices(),
            critical_path=path,
            judgement=read_judgement(self._history.directory.path),
        )

    def _workers(self, until: datetime, *, live: bool) -> list[WorkerReport]:
        phases = phases_of(self._events, until)
        reports = []
        for position, (number, view) in enumerate(self._history.workers.items(), start=1):
            result = self._history.worker_result(number, live=live)
            report = self._worker(view, position, result, live=live)
            own = phases.get(number) or tuple(_agent_phase(result))
            reports.append(report.model_copy(update={"phases": own}))
        return reports

    def _worker(
        self, view: WorkerView, position: int, result: WorkerResult | None, *, live: bool
    ) -> WorkerReport:
        spec, directory = view.spec, self._history.directory
        archived = (Checkpoints(path).given_up() for _, path in directory.attempts(spec.worker_id))
        return WorkerReport(
            worker_id=spec.worker_id,
            key=spec.name or f"worker-{position}",
            name=spec.name,
            task=spec.task,
            agent=self._agent(spec.name),
            model=spec.model_name,
            branch=spec.branch,
            required=spec.required,
            depends_on=self._dependencies(spec.name),
            state=WorkerState.DONE if result else view.state,
            result=result,
            attempts=tuple(attempt for attempt in archived if attempt is not None),
            alerts=self._alerts(spec.worker_id, result),
            started_at=result.started_at if result else view.started_at,
            container=view.container,
            steps=result.steps if result else view.steps or 0,
            cost=result.cost if result else view.cost or 0.0,
            cost_known=result.cost_known if result else view.cost is not None,
            directory=directory.worker(spec.worker_id),
            has_died=result is None and not live,
        )

    def _agent(self, name: str | None) -> str | None:
        if self._record is None:
            return None
        task = self._workflow.by_id.get(name) if self._workflow and name else None
        own = task.settings.agent_cli if task else None
        return own or self._record.config.agent_cli

    def _dependencies(self, name: str | None) -> tuple[str, ...]:
        task = self._workflow.by_id.get(name) if self._workflow and name else None
        return task.depends_on if task else ()

    def _alerts(self, worker_id: int, result: WorkerResult | None) -> tuple[Noticed, ...]:
        if result is not None:
            return tuple(result.interventions)
        found = (event for event in self._events if isinstance(event, Intervention))
        own = [
            Noticed(trigger=event.trigger, detail=event.detail, at=event.at)
            for event in found
            if event.worker_id == worker_id
        ]
        return tuple(own[-MOST_ALERTS:])

    def _pauses(self, until: datetime) -> Iterator[Pause]:
        for event in self._events:
            if isinstance(event, ProviderPaused):
                end = min(event.at + timedelta(seconds=event.seconds), until)
                yield Pause(provider=event.provider, start=event.at, end=max(end, event.at))

    def _notices(self) -> tuple[str, ...]:
        found = [event.message for event in self._events if isinstance(event, Notice)]
        if len(found) > MOST_NOTICES:
            half = MOST_NOTICES // 2
            found = [*found[:half], *found[-half:]]
        return tuple(found)

    def _critical_path(self, workers: Sequence[WorkerReport], duration: float) -> tuple[str, ...]:
        results = [worker.result for worker in workers if worker.result]
        if self._workflow is not None:
            wall, slots = max(duration, 0.0), len(workers)
            return summarise(results, wall=wall, slots=slots, workflow=self._workflow).critical_path
        ended = [worker for worker in workers if worker.phases]
        if len(ended) < 2:
            return ()
        return (max(ended, key=lambda worker: worker.phases[-1].end).key,)


def _agent_phase(result: WorkerResult | None) -> Iterator[Phase]:
    """Yield the agent's phase, from the result of a worker whose events are missing."""
    if result is not None and result.started_at is not None:
        end = result.started_at + timedelta(seconds=result.duration)
        yield Phase(kind=PhaseKind.AGENT, start=result.started_at, end=end, attempt=result.attempts)


def _marked(worker: WorkerReport, path: Sequence[str]) -> WorkerReport:
    return worker.model_copy(update={"is_critical": worker.key in path})
