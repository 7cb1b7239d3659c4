"""Start a failed worker again; nothing of the attempt before is lost.

What giving an attempt up comes to, each step such that it may be done over again:

    attempt.json             its result, in the worker's state directory: there is to be another
    refs/.../<run>/<N>/<K>   what it wrote
    branch and worktree      back to where the run started, unless the user changed them
    worker-N.attempt-K       the state directory's new name; so many are behind us
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.checkpoints import Checkpoints
from orchestrator.context import RunContext
from orchestrator.errors import OrchestratorError
from orchestrator.events import Notice, WorkerRetrying
from orchestrator.plan import WorkerSpec
from orchestrator.repository import ATTEMPTS
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.session import cancel_of
from orchestrator.worker import run_worker
from orchestrator.worktree import clear_place, open_worktree

RETRIED: Mapping[Reason, bool] = {
    Reason.AGENT_FAILED: True,
    Reason.AGENT_ERROR: True,
    Reason.NO_REPORT: True,
    Reason.RATE_LIMITED: True,
    Reason.SETUP_FAILED: True,
    Reason.ENGINE_ERROR: True,
    # The same again would cost as much and come to the same.
    Reason.MAX_STEPS: False,
    Reason.CONTEXT_FULL: False,
    Reason.BUDGET: False,
    Reason.TIMEOUT: False,
    Reason.IDLE: False,
    Reason.OOM: False,
    Reason.PIDS: False,
    Reason.OPEN_FILES: False,
    Reason.DISK: False,
    Reason.INODES: False,
    Reason.LOG_LIMIT: False,
    Reason.REPEATED_ERROR: False,
    Reason.NEEDS_INPUT: False,
    Reason.OUT_OF_SCOPE: False,
    Reason.CHECKS_FAILED: False,
    Reason.AUTH: False,
    Reason.HARVEST_REFUSED: False,
    Reason.INTERNAL_ERROR: False,
    Reason.DEPENDENCY: False,
    Reason.CONFLICT: False,
    Reason.CANCELLED: False,
}
"""Whether a worker that ended so is started again, where retries are asked for."""


@dataclass(frozen=True)
class Again:
    """An attempt was given up; there is to be another."""

    delay: float
    """Seconds until then."""


def attempt(run: RunContext, spec: WorkerSpec) -> WorkerResult | Again:
    """Run a worker's next attempt, or what is left of the one that is under way.

    Raises:
        EngineUnavailableError: The engine went away; all is left for whoever resumes the run.
    """
    earlier = _earlier(run, spec)
    checkpoints = Checkpoints(run.directory.worker(spec.worker_id))
    given_up = checkpoints.given_up()
    if given_up is not None:
        earlier = [*earlier, given_up]
    under_way = given_up is None and checkpoints.prepared
    if earlier and not under_way and cancel_of(run, spec).asked:
        return _summed_up(_called_off(run, spec, earlier[-1]), earlier)
    if given_up is not None:
        try:
            _set_aside(run, spec, given_up)
        except (OrchestratorError, OSError) as error:
            return _summed_up(_with_note(given_up, f"no further attempt ({error})"), earlier)
    result = run_worker(_with_rest_of_budget(run, earlier), spec)
    result = result.model_copy(update={"attempts": len(earlier) + 1})
    return _again(run, checkpoints, result, earlier) or _summed_up(result, [*earlier, result])


def in_all(run: RunContext, spec: WorkerSpec, result: WorkerResult) -> WorkerResult:
    """Add what a worker's earlier attempts were to a result that says nothing of them."""
    earlier = _earlier(run, spec)
    result = result.model_copy(update={"attempts": len(earlier) + 1})
    return _summed_up(result, [*earlier, result])


def has_begun(run: RunContext, spec: WorkerSpec) -> bool:
    """Tell whether a worker has a container to end, or work to bring home or to keep."""
    checkpoints = Checkpoints(run.directory.worker(spec.worker_id))
    given_up = checkpoints.given_up() is not None
    return checkpoints.prepared or given_up or bool(run.directory.attempts(spec.worker_id))


def _earlier(run: RunContext, spec: WorkerSpec) -> list[WorkerResult]:
    found = (Checkpoints(path).given_up() for _, path in run.directory.attempts(spec.worker_id))
    return [result for result in found if result is not None]


def _summed_up(result: WorkerResult, attempts: Sequence[WorkerResult]) -> WorkerResult:
    """Let a last result say what all attempts cost together."""
    tokens = [one.tokens for one in attempts if one.tokens is not None]
    return result.model_copy(
        update={
            "cost": sum(one.cost for one in attempts),
            "cost_known": any(one.cost_known for one in attempts),
            "tokens": sum(tokens) if tokens else None,
        }
    )


def _with_note(result: WorkerResult, note: str) -> WorkerResult:
    return result.model_copy(update={"message": "; ".join(filter(None, (result.message, note)))})


def _called_off(run: RunContext, spec: WorkerSpec, last: WorkerResult) -> WorkerResult:
    """Give the result of a worker that was cancelled while it waited to be started again."""
    why = f"{cancel_of(run, spec).why} before attempt {last.attempts + 1}"
    said = f"{why}; attempt {last.attempts}: {last.reason}: {last.message}"
    cancelled: dict[str, object] = {"reason": Reason.CANCELLED, "message": said}
    tip = run.repository.resolve(f"refs/heads/{spec.branch}")
    if tip != last.commit:
        cancelled |= {"commit": tip, "files_modified": [], "insertions": 0, "deletions": 0}
    return last.model_copy(update={"status": Status.FAILED, **cancelled})


def _with_rest_of_budget(run: RunContext, earlier: Sequence[WorkerResult]) -> RunContext:
    budget = run.config.budget_per_worker
    if budget is None or not earlier:
        return run
    rest = budget - sum(one.cost for one in earlier)
    return replace(run, config=run.config.model_copy(update={"budget_per_worker": rest}))


def _again(
    run: RunContext, checkpoints: Checkpoints, result: WorkerResult, earlier: Sequence[WorkerResult]
) -> Again | None:
    """Give a failed attempt up, if there is to be another."""
    if not _is_retried(run, checkpoints, result, earlier):
        return None
    try:
        checkpoints.note_given_up(run.redactor.model(result))
    except OSError:
        # A full disk: what cannot be noted is not given up.
        return None
    delay = run.config.retry_delay
    run.emit(
        WorkerRetrying(
            worker_id=result.worker_id,
            attempt=result.attempts + 1,
            reason=str(result.reason),
            delay=delay,
        )
    )
    return Again(delay)


def _is_retried(
    run: RunContext, checkpoints: Checkpoints, result: WorkerResult, earlier: Sequence[WorkerResult]
) -> bool:
    config = run.config
    if result.reason is None or result.attempts > config.retries:
        return False
    if not (RETRIED[result.reason] or result.reason in config.retry_on):
        return False
    budget = config.budget_per_worker
    if budget is not None and sum(one.cost for one in (*earlier, result)) >= budget:
        return False
    # Of a resumed run, what cannot be found again may have a container that still goes on.
    return result.reason is not Reason.SETUP_FAILED or checkpoints.launch() is None


def _set_aside(run: RunContext, spec: WorkerSpec, result: WorkerResult) -> None:
    """Keep a given up attempt, and make its place free."""
    root = run.directory.worker(spec.worker_id)
    kept = run.directory.attempt(spec.worker_id, result.attempts)
    checkpoints = Checkpoints(root)
    start = checkpoints.start()
    if start is None:
        with run.repository.lock():
            clear_place(run.repository, spec, root)
    elif result.commit not in (None, start):
        ref = f"{ATTEMPTS}{run.directory.run_id}/{spec.worker_id}/{result.attempts}"
        run.repository.git.run("update-ref", ref, str(result.commit))
    if run.config.retry_from == "base" and result.commit not in (None, run.base):
        _back_to_base(run, spec, result)
    message = result.message
    if message is not None and str(kept) not in message:
        message = message.replace(str(root), str(kept))
    checkpoints.note_given_up(result.model_copy(update={"log": str(kept), "message": message}))
    root.rename(kept)


def _back_to_base(run: RunContext, spec: WorkerSpec, result: WorkerResult) -> None:
    """Bring branch and worktree back to the base; what the user changed there is left alone."""
    repository, commit = run.repository, str(result.commit)
    try:
        with repository.lock():
            if repository.resolve(f"refs/heads/{spec.branch}") != run.base:
                repository.move_branch(spec.branch, new=run.base, old=commit)
            try:
                worktree = open_worktree(repository.top / spec.directory, spec.branch)
                worktree.refresh(repository, again=run.resumed)
                worktree.update(repository, base=commit, tip=run.base, again=run.resumed)
            except OrchestratorError:
                repository.move_branch(spec.branch, new=commit, old=run.base)
                raise
    except OrchestratorError as error:
        said = f"worker {spec.worker_id}: {spec.directory} was changed meanwhile ({error.message})"
        run.emit(Notice(message=f"{said}; attempt {result.attempts + 1} goes on from there"))
