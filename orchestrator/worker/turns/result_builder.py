"""Create the results of workers. No other module creates or changes a result.

result_of_end       the container ended, and its work was harvested
result_of_failure   the worker never started, or its end was not observed
result_of_loss      the worker's place was lost, and its work with it
result_of_skip      the worker will never run
result_of_cancel    the worker was cancelled while it waited for another attempt
result_of_dead_run  the run of the worker died, and is cleaned up
with_attempts       a result, with the cost of the earlier attempts
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agents.base import AgentOutcome
from orchestrator.base.errors import OrchestratorError, PlaceLostError
from orchestrator.base.results import CheckResult, Reason, Status, WorkerResult
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.network.broker.ledger import Spent
from orchestrator.repository.commits.changes import Changes
from orchestrator.repository.incoming.packed_work import Harvested
from orchestrator.sandbox.supervision.verdict import Verdict
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.state.worker.endings import Ending
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.turns.turns import all_turns, own_turns

NO_CHANGES = Changes()
_NO_OUTCOME = AgentOutcome(status=Status.FAILED)


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Everything that is known about a worker when it ends."""

    ending: Ending
    outcome: AgentOutcome | None
    """The agent's own report; None if there is none."""
    verdict: Verdict
    spent: Spent | None = None
    """What the credential broker measured; None without a broker."""
    harvested: Harvested
    changes: Changes = NO_CHANGES
    checks: Sequence[CheckResult] = ()
    artifacts: Sequence[str] = ()
    notes: Sequence[str] = ()
    """Messages for the user."""


def result_of_end(worker: WorkerContext, finish: Finish) -> WorkerResult:
    """Return the result of a worker that ran and whose commits were collected."""
    spec, ending, verdict = worker.spec, finish.ending, finish.verdict
    outcome, changes = finish.outcome or _NO_OUTCOME, finish.changes
    cost, tokens = outcome.cost, outcome.tokens
    if finish.spent is not None:
        cost, tokens = finish.spent.cost_if_known, finish.spent.tokens
    refused = None if verdict.status is Status.SUCCESS else worker.network_log.refusals()
    messages = filter(None, (verdict.message, *finish.notes, refused))
    result = WorkerResult(
        worker_id=spec.worker_id,
        branch=spec.branch,
        model=spec.model_name,
        status=verdict.status,
        steps=outcome.steps,
        cost=cost or 0.0,
        duration=round(ending.duration, 3),
        files_modified=list(changes.files),
        files_total=changes.total,
        worktree_path=_worktree_path(worker),
        name=spec.name,
        required=spec.required,
        task=spec.task,
        reason=verdict.reason,
        message="; ".join(messages) or None,
        attempts=_attempt_number(worker),
        exit_code=None if ending.exit_status is None else ending.exit_status.exit_code,
        summary=outcome.summary,
        base=worker.base,
        commit=finish.harvested.tip,
        kept_refs=list(finish.harvested.kept_refs),
        insertions=changes.insertions,
        deletions=changes.deletions,
        checks=list(finish.checks),
        artifacts=list(finish.artifacts),
        tokens=tokens,
        retry_after=outcome.retry_after if verdict.reason is Reason.RATE_LIMITED else None,
        cost_known=cost is not None,
        ports=dict(ending.ports),
        limits_hit=list(ending.limits_hit),
        limits_unenforced=list(worker.run.features.unenforced),
        transfer=worker.run.features.transfer,
        interventions=list(ending.interventions),
        cpu_time=ending.cpu_time,
        peak_memory=ending.peak_memory,
        uncounted=ending.uncounted,
        started_at=ending.started_at,
        timings=worker.times.read(),
        network=worker.network_log.counts(),
        log=str(worker.directory),
    )
    return result.model_copy(update={"turns": own_turns(worker, result)})


def _worktree_path(worker: WorkerContext) -> str:
    """Return the path of the worker's worktree; empty if the worker will never have a worktree."""
    run = worker.run
    return "" if run.config.worktrees == "none" else str(run.repository.top / worker.spec.directory)


def result_of_failure(
    worker: WorkerContext, reason: Reason | None, message: str, *, status: Status = Status.FAILED
) -> WorkerResult:
    """Return the result of a worker that did not start, or whose end was not observed.

    The result contains the worker's base commit, and the commit of its branch.
    """
    spec, commit = worker.spec, worker.base
    with suppress(OrchestratorError):
        tip = worker.run.repository.resolve(worker.spec.ref)
        commit = worker.base if tip == worker.run.base else tip
    result = WorkerResult(
        worker_id=spec.worker_id,
        branch=spec.branch,
        model=spec.model_name,
        status=status,
        worktree_path=_worktree_path(worker),
        name=spec.name,
        required=spec.required,
        task=spec.task,
        reason=reason,
        message=message,
        attempts=_attempt_number(worker),
        base=worker.base,
        commit=commit,
        limits_unenforced=list(worker.run.features.unenforced),
        transfer=worker.run.features.transfer,
        timings=worker.times.read(),
    )
    return result.model_copy(update={"turns": own_turns(worker, result)})


def result_of_loss(
    worker: WorkerContext, error: PlaceLostError, outcome: AgentOutcome | None
) -> WorkerResult:
    """Return the result of an attempt whose place is gone, with what it had spent until then."""
    reason = Reason.DISK if error.key == "place.disk" else Reason.ENGINE_ERROR
    result, launched = result_of_failure(worker, reason, error.message), worker.checkpoints.launch()
    duration = 0.0 if launched is None else round(launched.age or 0.0, 3)
    update = {"log": str(worker.directory), "duration": duration}
    if outcome is not None:
        cost = outcome.cost
        update |= {"cost": cost or 0.0, "cost_known": cost is not None, "tokens": outcome.tokens}
    return result.model_copy(update=update)


def result_of_skip(worker: WorkerContext, reason: Reason | None, message: str) -> WorkerResult:
    """Return the result of a worker that will never run; a success if `reason` is None."""
    status = Status.SUCCESS if reason is None else Status.FAILED
    return result_of_failure(worker, reason, message, status=status)


def result_of_cancel(worker: WorkerContext, last: WorkerResult) -> WorkerResult:
    """Return the result of a worker that was cancelled while it waited for another attempt."""
    why = f"{worker.cancel.why} before attempt {last.attempts + 1}"
    said = f"{why}; attempt {last.attempts}: {last.reason}: {last.message}"
    if last.reason is None:
        said = f"{why}, so its message was not delivered"
    update: dict[str, object] = {"reason": Reason.CANCELLED, "message": said}
    tip = worker.run.repository.resolve(worker.spec.ref)
    if tip != last.commit:
        nothing = {"files_modified": [], "files_total": 0, "insertions": 0, "deletions": 0}
        update |= {"commit": tip, **nothing}
    return last.model_copy(update={"status": Status.FAILED, **update})


def result_of_dead_run(
    spec: WorkerSpec, *, path: Path, directory: Path, commit: str | None, changes: Changes | None
) -> WorkerResult:
    """Return the result of a worker whose run died and is now cleaned up.

    Args:
        spec: The worker.
        path: The former path of its worktree.
        directory: Its state directory.
        commit: The commit that its branch pointed at.
        changes: Changes of that commit, if known.
    """
    listed = changes or NO_CHANGES
    return WorkerResult(
        worker_id=spec.worker_id,
        branch=spec.branch,
        model=spec.model_name,
        status=Status.FAILED,
        files_modified=list(listed.files),
        files_total=None if changes is None else changes.total,
        worktree_path=str(path),
        name=spec.name,
        required=spec.required,
        task=spec.task,
        reason=Reason.CANCELLED,
        message="the process of the run died, and the run was cleaned up",
        commit=commit,
        insertions=listed.insertions,
        deletions=listed.deletions,
        log=str(directory),
    )


def with_attempts(result: WorkerResult, earlier: Sequence[WorkerResult]) -> WorkerResult:
    """Return a worker's last result, with the cost and the refs of all its attempts."""
    attempts = [*earlier, result]
    tokens = [attempt.tokens for attempt in attempts if attempt.tokens is not None]
    return result.model_copy(
        update={
            "attempts": len(attempts),
            "restarts": sum(attempt.restarts for attempt in attempts),
            "turns": all_turns(attempts),
            "cost": sum(attempt.cost for attempt in attempts),
            "cost_known": any(attempt.cost_known for attempt in attempts),
            "tokens": sum(tokens) if tokens else None,
            "kept_refs": list(
                dict.fromkeys(ref for attempt in attempts for ref in attempt.kept_refs)
            ),
        }
    )


def with_note(result: WorkerResult, note: str) -> WorkerResult:
    """Return a result with a note added to its message."""
    return result.model_copy(update={"message": "; ".join(filter(None, (result.message, note)))})


def earlier_results(worker: WorkerContext) -> list[WorkerResult]:
    """Return the results of the worker's failed attempts, first attempt first."""
    found = (Checkpoints(path).attempt_result() for _, path in worker.attempts())
    return [result for result in found if result is not None]


def _attempt_number(worker: WorkerContext) -> int:
    return len(earlier_results(worker)) + 1
