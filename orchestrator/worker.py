"""One worker from start to finish: the story of the product, read this first."""

from dataclasses import replace

from orchestrator.agents.base import AgentOutcome, AgentOutput
from orchestrator.agents.symptoms import limits_named
from orchestrator.containers import worker_container
from orchestrator.context import RunContext
from orchestrator.errors import OrchestratorError
from orchestrator.events import WorkerPreparing
from orchestrator.execution import Terms, execute
from orchestrator.harvest import Harvested
from orchestrator.homecoming import bring_home
from orchestrator.judge import Ending, Verdict, judge
from orchestrator.logs import WorkerLog
from orchestrator.plan import WorkerSpec
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.store import StoreOptions, make_store
from orchestrator.workspace import Workspace, worker_user
from orchestrator.worktree import Changes, add_worktree, changes

_NOTHING = Changes(files=(), insertions=0, deletions=0)


def run_worker(run: RunContext, spec: WorkerSpec) -> WorkerResult:
    """Do one worker's job; whatever goes wrong in it is its result."""
    run.emit(WorkerPreparing(worker_id=spec.worker_id))
    try:
        workspace = prepare(run, spec)
    except (OrchestratorError, OSError) as error:
        return failure(run, spec, Reason.SETUP_FAILED, str(error))
    log = _open_log(run, spec)
    with log:
        ending = _run_container(run, spec, workspace, log)
    ending = _with_last_words(ending, log)
    outcome = _read_outcome(run, log, ending)
    verdict = _with_whole_log(
        judge(ending, outcome, budget=run.config.budget_per_worker), log.failure
    )
    harvested, verdict = bring_home(run, spec, workspace, verdict)
    return _result(run, spec, ending, outcome, harvested, verdict)


def _run_container(
    run: RunContext, spec: WorkerSpec, workspace: Workspace, log: WorkerLog
) -> Ending:
    try:
        with run.secrets.laid_out(run.directory.run_id, spec.worker_id, workspace.user) as secrets:
            return execute(
                run.engine,
                worker_container(run, spec, workspace, secrets),
                _terms(run, spec, workspace),
                log=log,
                cancel=run.cancel,
                emit=run.emit,
            )
    except OrchestratorError as error:
        return Ending(started_at=None, duration=0.0, exit_status=None, error=error)


def prepare(run: RunContext, spec: WorkerSpec) -> Workspace:
    """Make the worktree and everything the container is given."""
    root = run.directory.worker(spec.worker_id)
    root.mkdir()
    with run.repository.lock():
        worktree = add_worktree(run.repository, spec)
    user = worker_user(spec.worker_id)
    options = StoreOptions(
        base=run.base, shallow=run.shallow, mode=run.mode, owner=user, excluded=run.agent.droppings
    )
    store = make_store(run.repository, worktree, root, options)
    return Workspace(
        worktree=worktree, store=store, objects=run.directory.objects, mode=run.mode, user=user
    )


def _open_log(run: RunContext, spec: WorkerSpec) -> WorkerLog:
    return WorkerLog(
        run.directory.worker(spec.worker_id),
        spec.worker_id,
        emit=run.emit,
        read_progress=run.agent.progress,
        limit=run.config.limits.log_limit,
        redactor=run.redactor,
    )


def _terms(run: RunContext, spec: WorkerSpec, workspace: Workspace) -> Terms:
    return Terms(
        worker_id=spec.worker_id,
        timeout=run.config.timeout,
        limits=run.config.limits,
        writable=workspace.writable(),
        budget=run.config.budget_per_worker,
        ports=run.config.isolation.ports,
    )


def _with_last_words(ending: Ending, log: WorkerLog) -> Ending:
    failed = ending.exit_status is not None and ending.exit_status.exit_code != 0
    if not failed:
        return ending
    named = (limit for limit in limits_named(log.stderr) if limit not in ending.limits_hit)
    return replace(ending, limits_hit=(*ending.limits_hit, *named))


def _read_outcome(run: RunContext, log: WorkerLog, ending: Ending) -> AgentOutcome | None:
    if ending.exit_status is None:
        return None
    return run.agent.outcome(AgentOutput(stdout=log.stdout, stderr=log.stderr), ending.exit_status)


def _with_whole_log(verdict: Verdict, failure: OSError | None) -> Verdict:
    """A success that was read from half a log is none."""
    if failure is None:
        return verdict
    note = f"its log is not whole ({failure.strerror})"
    if verdict.status is Status.SUCCESS:
        return Verdict(Status.PARTIAL, Reason.NO_REPORT, note)
    return replace(verdict, message=f"{verdict.message}; {note}")


def _changes(run: RunContext, harvested: Harvested) -> tuple[Changes, tuple[str, ...]]:
    """Compare with the base; the work is in, so a comparison that fails is a note and no more."""
    if harvested.tip == run.base:
        return _NOTHING, ()
    try:
        return changes(run.repository, base=run.base, tip=harvested.tip), ()
    except (OrchestratorError, OSError) as error:
        return _NOTHING, (f"what it changed could not be listed ({error})",)


def _result(
    run: RunContext,
    spec: WorkerSpec,
    ending: Ending,
    outcome: AgentOutcome | None,
    harvested: Harvested,
    verdict: Verdict,
) -> WorkerResult:
    changed, notes = _changes(run, harvested)
    cost = None if outcome is None else outcome.cost
    messages = [verdict.message, *harvested.notes, *notes]
    return WorkerResult(
        worker_id=spec.worker_id,
        branch=spec.branch,
        model=spec.model_name,
        status=verdict.status,
        steps=0 if outcome is None else outcome.steps,
        cost=cost or 0.0,
        duration=round(ending.duration, 3),
        files_modified=list(changed.files),
        worktree_path=str(run.repository.top / spec.directory),
        task=spec.task,
        reason=verdict.reason,
        message="; ".join(message for message in messages if message) or None,
        exit_code=None if ending.exit_status is None else ending.exit_status.exit_code,
        commit=harvested.tip,
        insertions=changed.insertions,
        deletions=changed.deletions,
        tokens=None if outcome is None else outcome.tokens,
        cost_known=cost is not None,
        ports=dict(ending.ports),
        limits_hit=list(ending.limits_hit),
        peak_memory=ending.peak_memory,
        started_at=ending.started_at,
        log=str(run.directory.worker(spec.worker_id)),
    )


def failure(run: RunContext, spec: WorkerSpec, reason: Reason, message: str) -> WorkerResult:
    """Give the result of a worker whose container never ran."""
    return WorkerResult(
        worker_id=spec.worker_id,
        branch=spec.branch,
        model=spec.model_name,
        status=Status.FAILED,
        worktree_path=str(run.repository.top / spec.directory),
        task=spec.task,
        reason=reason,
        message=message,
        commit=run.base,
    )
