"""One worker from its start to its result. Read this module first."""

from collections.abc import Iterable
from itertools import islice

from orchestrator.agents.base import AgentOutcome, AgentOutput
from orchestrator.base.errors import (
    EngineUnavailableError,
    OrchestratorError,
    PlaceLostError,
    StartCancelledError,
    UnfinishedError,
)
from orchestrator.base.events import WorkerPreparing
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.text.path_patterns import outside
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.commits.changes import Changes, changes, differing_paths
from orchestrator.repository.incoming.packed_work import Harvested
from orchestrator.sandbox.supervision.output import WorkerLog, log_files
from orchestrator.sandbox.supervision.verdict import Verdict, judge
from orchestrator.state.worker.endings import Ending
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.harvest.harvest import harvest_worker
from orchestrator.worker.prepare import ready_workspace
from orchestrator.worker.steps.agent_container import open_log, run_task
from orchestrator.worker.steps.checks import check
from orchestrator.worker.steps.dotenv import write_dotenv
from orchestrator.worker.steps.grants import explain, read_spending, with_measured
from orchestrator.worker.steps.place import close_place, open_place
from orchestrator.worker.steps.services import Services
from orchestrator.worker.steps.stages import set_up, tear_down
from orchestrator.worker.turns.result_builder import (
    NO_CHANGES,
    Finish,
    result_of_end,
    result_of_failure,
)
from orchestrator.worker.turns.sessions import with_session
from orchestrator.worker.workspace.caches import publish

_NOT_RUN = Ending(started_at=None, duration=0.0, exit_status=None)
_SHOWN = 5
"""Maximum number of files that one message names."""


def run_worker(worker: WorkerContext) -> WorkerResult:
    """Run one worker, or continue it after a crash, and return its result, even if it failed.

    Raises:
        PlaceLostError: The place is gone, and with it the work.
        EngineUnavailableError: The engine cannot be reached; a resumed run continues from here.
        UnfinishedError: The work could not be collected; a resumed run tries again.
    """
    checkpoints, times = worker.checkpoints, worker.times
    times.restart()
    times.begin("prepare")
    worker.run.emit(WorkerPreparing(worker_id=worker.number))
    with Services(worker) as services:
        try:
            workspace = with_session(worker, ready_workspace(worker))
            place = open_place(worker, workspace)
            unready = services.ready(place)
            if unready is None and checkpoints.launch() is None:
                write_dotenv(worker, workspace, place, services.variables())
            times.begin("setup")
            unready = unready or set_up(worker, workspace, place, services)
            before = _NOT_RUN if unready else checkpoints.ending() or open_log(worker)
        except (EngineUnavailableError, PlaceLostError):
            raise
        except (OrchestratorError, OSError) as error:
            return _unprepared(worker, error)
        if isinstance(before, WorkerLog):
            with before as log:
                ending = run_task(worker, workspace, place, log, services)
        else:
            ending = before
        times.begin("stop")
        spent = read_spending(worker)
        outcome = with_measured(_read_outcome(worker, ending), spent)
        judged = judge(ending, outcome, budget=worker.budget.budget, tokens=worker.budget.tokens)
        judged = explain(worker, judged, spent)
        verdict = unready or _with_whole_log(judged, ending)
        notes = tear_down(worker, workspace, place, services)
        verdict = _publish(worker, verdict)
    worker.leave_network(verdict)
    times.begin("harvest")
    harvested, verdict = harvest_worker(worker, workspace, place, verdict)
    handed = close_place(worker, place, harvested)
    times.begin("checks")
    checks, verdict = check(worker, workspace, harvested.tip, verdict)
    changed, listing_notes = _list_changes(worker, harvested)
    finish = Finish(
        ending=ending,
        outcome=outcome,
        verdict=_in_scope(worker, verdict, changed, harvested.tip),
        spent=spent,
        harvested=harvested,
        changes=changed,
        checks=checks,
        artifacts=handed.artifacts,
        notes=(*notes, *harvested.notes, *handed.notes, *listing_notes),
    )
    return result_of_end(worker, finish)


def _unprepared(worker: WorkerContext, error: Exception) -> WorkerResult:
    """Return the result of a worker that could not be prepared for its task.

    Raises:
        UnfinishedError: The task has begun before; a resumed run tries again to collect its work.
    """
    # protection: begun-worker-is-not-failed-by-its-preparation
    if worker.checkpoints.launch() is not None:
        raise UnfinishedError(str(error), key="work.uncollected") from error
    is_stopped = isinstance(error, StartCancelledError)
    reason = Reason.CANCELLED if is_stopped else Reason.SETUP_FAILED
    return result_of_failure(worker, reason, str(error))


def _publish(worker: WorkerContext, verdict: Verdict) -> Verdict:
    """Publish a successful worker's caches if its run fills caches; return the new verdict."""
    run = worker.run
    # protection: caches-are-published-only-after-success
    if not run.caches.warms or verdict.status is not Status.SUCCESS:
        return verdict
    try:
        publish(run.caches, run.repository, worker.base, run.directory.run_id, worker.directory)
    except (OrchestratorError, OSError) as error:
        note = f"the caches could not be published ({error})"
        return Verdict(Status.FAILED, Reason.SETUP_FAILED, note)
    return verdict


def _read_outcome(worker: WorkerContext, ending: Ending) -> AgentOutcome | None:
    if ending.exit_status is None:
        return None
    stdout, stderr = log_files(worker.directory)
    return worker.agent.outcome(AgentOutput(stdout=stdout, stderr=stderr), ending.exit_status)


def _with_whole_log(verdict: Verdict, ending: Ending) -> Verdict:
    """Return the verdict; a success becomes `partial` if the worker's log is incomplete."""
    if ending.log_failure is None:
        return verdict
    note = f"the log is incomplete ({ending.log_failure})"
    if verdict.status is Status.SUCCESS:
        return Verdict(Status.PARTIAL, Reason.NO_REPORT, note)
    return verdict.with_note(note)


def _list_changes(worker: WorkerContext, harvested: Harvested) -> tuple[Changes, tuple[str, ...]]:
    """Compare the worker's commit with its base; return the changes, and notes about errors."""
    if harvested.tip == worker.base:
        return NO_CHANGES, ()
    try:
        changed = changes(worker.run.repository, base=worker.base, tip=harvested.tip)
    except (OrchestratorError, OSError) as error:
        return NO_CHANGES, (f"the changed files could not be listed ({error})",)
    return changed, changed.notes


def _in_scope(worker: WorkerContext, verdict: Verdict, changed: Changes, tip: str) -> Verdict:
    """Return the verdict; a success becomes `partial` if files outside `paths` were changed."""
    paths = worker.config.triggers.paths
    # protection: paths-are-enforced-without-workflow
    if not paths or tip == worker.base or verdict.status is not Status.SUCCESS:
        return verdict
    try:
        strayed, more = _stray_paths(worker, changed, tip)
    except (OrchestratorError, OSError):
        return Verdict(
            Status.PARTIAL,
            Reason.OUT_OF_SCOPE,
            "it is unknown whether all changes are in the allowed paths",
        )
    if not strayed:
        return verdict
    shown = ", ".join(f"`{one_line(path, limit=100)}`" for path in strayed)
    rest = f" and {more} more" if more else ""
    where = ", ".join(f"`{path}`" for path in paths)
    return Verdict(
        Status.PARTIAL,
        Reason.OUT_OF_SCOPE,
        f"the worker changed {shown}{rest}, which is not in {where}",
    )


def _stray_paths(worker: WorkerContext, changed: Changes, tip: str) -> tuple[list[str], int]:
    """Return the first changed paths that are not allowed, and the number of further ones."""
    all_of_them: Iterable[str] = changed.files
    # protection: paths-are-enforced-for-unlisted-files
    if not changed.total or not changed.is_whole:
        all_of_them = differing_paths(worker.run.repository, base=worker.base, tip=tip)
    shown: list[str] = []
    count, rest = 0, iter(all_of_them)
    while batch := list(islice(rest, 1000)):
        strayed = outside(worker.config.triggers.paths, batch)
        count += len(strayed)
        shown += strayed[: _SHOWN - len(shown)]
    return shown, count - len(shown)
