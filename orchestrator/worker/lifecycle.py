"""One worker from start to finish: the story of the product, read this first."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from orchestrator.agents.base import AgentOutcome, AgentOutput
from orchestrator.errors import EngineUnavailableError, OrchestratorError
from orchestrator.events import WorkerPreparing
from orchestrator.execution.output import WorkerLog, log_files
from orchestrator.execution.verdict import Verdict, judge
from orchestrator.git.changes import Changes, changed_paths, changes
from orchestrator.git.quarantine import Harvested
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.state.endings import Ending
from orchestrator.text.path_patterns import outside
from orchestrator.text.sanitize import one_line
from orchestrator.worker.agent_container import cancel_of, open_log, run_task
from orchestrator.worker.checks import check
from orchestrator.worker.context import RunContext
from orchestrator.worker.dotenv import write_dotenv
from orchestrator.worker.harvest import harvest_worker
from orchestrator.worker.prepare import ready_workspace
from orchestrator.worker.services import Services
from orchestrator.worker.stages import set_up, tear_down
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.caches import publish

_NOT_RUN = Ending(started_at=None, duration=0.0, exit_status=None)
_SHOWN = 5
"""Files that a message names."""
_NOTHING = Changes()


def run_worker(run: RunContext, spec: WorkerSpec) -> WorkerResult:
    """Do one worker's job, or what is left of it; whatever goes wrong in it is its result."""
    checkpoints = Checkpoints(run.directory.worker(spec.worker_id))
    run.emit(WorkerPreparing(worker_id=spec.worker_id))
    with Services(run, spec, checkpoints, cancel_of(run, spec)) as services:
        try:
            workspace = ready_workspace(run, spec, checkpoints)
            unready = services.ready()
            if unready is None and checkpoints.launch() is None:
                write_dotenv(run, spec, workspace, services.variables())
            unready = unready or set_up(run, spec, workspace, checkpoints, services)
            before = _NOT_RUN if unready else checkpoints.ending() or open_log(run, spec)
        except EngineUnavailableError:
            raise
        except (OrchestratorError, OSError) as error:
            return failure(run, spec, Reason.SETUP_FAILED, str(error))
        if isinstance(before, WorkerLog):
            with before as log:
                ending = run_task(run, spec, workspace, checkpoints, log, services)
        else:
            ending = before
        outcome = _read_outcome(run, spec, ending)
        judged = judge(
            ending,
            outcome,
            budget=run.config.budget_per_worker,
            tokens=run.config.tokens_per_worker,
        )
        verdict = unready or _with_whole_log(judged, ending)
        notes = tear_down(run, spec, workspace, checkpoints, services)
        verdict = _publish(run, spec, verdict)
    harvested, verdict = harvest_worker(run, spec, workspace, verdict, checkpoints)
    handed = run.shared.collect(spec)
    harvested = replace(harvested, notes=(*notes, *harvested.notes, *handed.notes))
    checks, verdict = check(run, spec, workspace, harvested.tip, verdict, checkpoints)
    result = _result(run, spec, ending, outcome, harvested, verdict)
    return result.model_copy(update={"checks": checks, "artifacts": list(handed.artifacts)})


def _publish(run: RunContext, spec: WorkerSpec, verdict: Verdict) -> Verdict:
    """Keep what `cache warm` has made, if all of it went well."""
    if not run.caches.warms or verdict.status is not Status.SUCCESS:
        return verdict
    root = run.directory.worker(spec.worker_id)
    try:
        publish(run.caches, run.repository, run.base, run.directory.run_id, root)
    except (OrchestratorError, OSError) as error:
        note = f"what was cached could not be kept ({error})"
        return Verdict(Status.FAILED, Reason.SETUP_FAILED, note)
    return verdict


def _read_outcome(run: RunContext, spec: WorkerSpec, ending: Ending) -> AgentOutcome | None:
    if ending.exit_status is None:
        return None
    stdout, stderr = log_files(run.directory.worker(spec.worker_id))
    return run.agent.outcome(AgentOutput(stdout=stdout, stderr=stderr), ending.exit_status)


def _with_whole_log(verdict: Verdict, ending: Ending) -> Verdict:
    """A success that was read from half a log is none."""
    if ending.log_failure is None:
        return verdict
    note = f"its log is not whole ({ending.log_failure})"
    if verdict.status is Status.SUCCESS:
        return Verdict(Status.PARTIAL, Reason.NO_REPORT, note)
    return verdict.with_note(note)


def _changes(run: RunContext, harvested: Harvested) -> tuple[Changes, tuple[str, ...]]:
    """Compare with the base; the work is in, so a comparison that fails is a note and no more."""
    if harvested.tip == run.base:
        return _NOTHING, ()
    try:
        changed = changes(run.repository, base=run.base, tip=harvested.tip)
    except (OrchestratorError, OSError) as error:
        return _NOTHING, (f"what it changed could not be listed ({error})",)
    return changed, changed.notes


def _in_scope(run: RunContext, verdict: Verdict, changed: Changes, tip: str) -> Verdict:
    """Make a success partial whose changes are not all where it is to make changes."""
    paths = run.config.triggers.paths
    if not paths or tip == run.base or verdict.status is not Status.SUCCESS:
        return verdict
    try:
        strayed, more = _strayed(run, changed, tip)
    except (OrchestratorError, OSError):
        return Verdict(
            Status.PARTIAL, Reason.OUT_OF_SCOPE, "whether it kept to its paths is not known"
        )
    if not strayed:
        return verdict
    shown = ", ".join(f"`{one_line(path, limit=100)}`" for path in strayed)
    rest = f" and {more} more" if more else ""
    where = ", ".join(f"`{path}`" for path in paths)
    return Verdict(
        Status.PARTIAL, Reason.OUT_OF_SCOPE, f"it changed {shown}{rest}, which is not in {where}"
    )


def _strayed(run: RunContext, changed: Changes, tip: str) -> tuple[list[str], int]:
    """Return the first few paths that are not where changes are to be made, and count the rest."""
    all_of_them: Iterable[str] = changed.files
    if not changed.total or not changed.is_whole:
        all_of_them = changed_paths(run.repository, base=run.base, tip=tip)
    shown: list[str] = []
    count, rest = 0, iter(all_of_them)
    while batch := list(islice(rest, 1000)):
        strayed = outside(run.config.triggers.paths, batch)
        count += len(strayed)
        shown += strayed[: _SHOWN - len(shown)]
    return shown, count - len(shown)


def _result(
    run: RunContext,
    spec: WorkerSpec,
    ending: Ending,
    outcome: AgentOutcome | None,
    harvested: Harvested,
    verdict: Verdict,
) -> WorkerResult:
    changed, notes = _changes(run, harvested)
    verdict = _in_scope(run, verdict, changed, harvested.tip)
    cost = None if outcome is None else outcome.cost
    messages = [verdict.message, *harvested.notes, *notes]
    refused = verdict.reason is Reason.RATE_LIMITED
    return WorkerResult(
        worker_id=spec.worker_id,
        branch=spec.branch,
        model=spec.model_name,
        status=verdict.status,
        steps=0 if outcome is None else outcome.steps,
        cost=cost or 0.0,
        duration=round(ending.duration, 3),
        files_modified=list(changed.files),
        files_total=changed.total,
        worktree_path=str(run.repository.top / spec.directory),
        name=spec.name,
        required=spec.required,
        task=spec.task,
        reason=verdict.reason,
        message="; ".join(message for message in messages if message) or None,
        exit_code=None if ending.exit_status is None else ending.exit_status.exit_code,
        summary=None if outcome is None else outcome.summary,
        base=run.base,
        commit=harvested.tip,
        kept_refs=list(harvested.kept_refs),
        insertions=changed.insertions,
        deletions=changed.deletions,
        tokens=None if outcome is None else outcome.tokens,
        retry_after=None if outcome is None or not refused else outcome.retry_after,
        cost_known=cost is not None,
        ports=dict(ending.ports),
        limits_hit=list(ending.limits_hit),
        interventions=list(ending.interventions),
        peak_memory=ending.peak_memory,
        started_at=ending.started_at,
        log=str(run.directory.worker(spec.worker_id)),
    )


def failure(run: RunContext, spec: WorkerSpec, reason: Reason, message: str) -> WorkerResult:
    """Return the result of a worker whose end was not seen: what it starts from, and its branch."""
    # In a workflow a task has a base of its own, which `run` need not be told of yet.
    base = run.directory.base_of(spec.worker_id) or run.base
    commit = base
    with suppress(OrchestratorError):
        tip = run.repository.resolve(f"refs/heads/{spec.branch}")
        commit = base if tip == run.run_base else tip
    return WorkerResult(
        worker_id=spec.worker_id,
        branch=spec.branch,
        model=spec.model_name,
        status=Status.FAILED,
        worktree_path=str(run.repository.top / spec.directory),
        name=spec.name,
        required=spec.required,
        task=spec.task,
        reason=reason,
        message=message,
        base=base,
        commit=commit,
    )
