"""Start a failed worker again; nothing of the attempt before is lost.

What giving an attempt up comes to, each step such that it may be done over again:

    attempt.json             its result, in the worker's state directory: there is to be another
    refs/.../<run>/<N>/<K>   what it wrote
    branch and worktree      back to where the run started, unless the user changed them
    worker-N.attempt-K       the state directory's new name; so many are behind us
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.events import Notice, WorkerRetrying
from orchestrator.git.repository import ATTEMPTS
from orchestrator.git.worktree import clear_place, open_worktree
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.worker.agent_container import cancel_of
from orchestrator.worker.context import RunContext, with_config
from orchestrator.worker.lifecycle import run_worker
from orchestrator.worker_spec import WorkerSpec

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


MOST_REFUSALS = 20
"""Times that a worker waits for its provider."""


@dataclass(frozen=True)
class RetryLater:
    """An attempt was given up; there is to be another."""

    delay: float
    """Seconds until then."""
    refused: bool = False
    """Whether its provider took no further requests; else the attempt was one of its retries."""
    resets_in: float | None = None
    """Seconds until it takes them again, by its own word."""


def attempt(run: RunContext, spec: WorkerSpec) -> WorkerResult | RetryLater:
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
    rest = _with_rest_of_budget(run, earlier)
    if given_up is not None:
        try:
            _check_rest(rest.config)
            _archive_attempt(run, spec, given_up)
        except (OrchestratorError, OSError) as error:
            return _summed_up(_with_note(given_up, f"no further attempt ({error})"), earlier)
    result = run_worker(rest, spec)
    result = result.model_copy(update={"attempts": len(earlier) + 1})
    return _again(run, checkpoints, result, earlier) or _summed_up(result, [*earlier, result])


def with_attempt_totals(run: RunContext, spec: WorkerSpec, result: WorkerResult) -> WorkerResult:
    """Add what a worker's earlier attempts were to a result that says nothing of them."""
    earlier = _earlier(run, spec)
    result = result.model_copy(update={"attempts": len(earlier) + 1})
    return _summed_up(result, [*earlier, result])


def has_begun(run: RunContext, spec: WorkerSpec) -> bool:
    """Return whether a worker has a container to end, or work to bring home or to keep."""
    checkpoints = Checkpoints(run.directory.worker(spec.worker_id))
    given_up = checkpoints.given_up() is not None
    return checkpoints.prepared or given_up or bool(run.directory.attempts(spec.worker_id))


def _earlier(run: RunContext, spec: WorkerSpec) -> list[WorkerResult]:
    found = (Checkpoints(path).given_up() for _, path in run.directory.attempts(spec.worker_id))
    return [result for result in found if result is not None]


def _summed_up(result: WorkerResult, attempts: Sequence[WorkerResult]) -> WorkerResult:
    """Let a last result say what all attempts cost together, and name all that they left."""
    tokens = [one.tokens for one in attempts if one.tokens is not None]
    return result.model_copy(
        update={
            "cost": sum(one.cost for one in attempts),
            "cost_known": any(one.cost_known for one in attempts),
            "tokens": sum(tokens) if tokens else None,
            "kept_refs": list(dict.fromkeys(ref for one in attempts for ref in one.kept_refs)),
        }
    )


def _with_note(result: WorkerResult, note: str) -> WorkerResult:
    return result.model_copy(update={"message": "; ".join(filter(None, (result.message, note)))})


def _called_off(run: RunContext, spec: WorkerSpec, last: WorkerResult) -> WorkerResult:
    """Return the result of a worker that was cancelled while it waited to be started again."""
    why = f"{cancel_of(run, spec).why} before attempt {last.attempts + 1}"
    said = f"{why}; attempt {last.attempts}: {last.reason}: {last.message}"
    cancelled: dict[str, object] = {"reason": Reason.CANCELLED, "message": said}
    tip = run.repository.resolve(f"refs/heads/{spec.branch}")
    if tip != last.commit:
        nothing = {"files_modified": [], "files_total": 0, "insertions": 0, "deletions": 0}
        cancelled |= {"commit": tip, **nothing}
    return last.model_copy(update={"status": Status.FAILED, **cancelled})


def _with_rest_of_budget(run: RunContext, earlier: Sequence[WorkerResult]) -> RunContext:
    budget, tokens = run.config.budget_per_worker, run.config.tokens_per_worker
    update: dict[str, float] = {}
    if budget is not None:
        update["budget_per_worker"] = budget - sum(one.cost for one in earlier)
    if tokens is not None:
        update["tokens_per_worker"] = tokens - sum(one.tokens or 0 for one in earlier)
    return with_config(run, run.config.model_copy(update=update)) if earlier else run


def _check_rest(config: ParallelConfig) -> None:
    budget, tokens = config.budget_per_worker, config.tokens_per_worker
    if (budget is not None and budget <= 0) or (tokens is not None and tokens <= 0):
        # Its share of the run's may be smaller after a resume.
        raise ConfigError("nothing of its budget is left")


def _again(
    run: RunContext, checkpoints: Checkpoints, result: WorkerResult, earlier: Sequence[WorkerResult]
) -> RetryLater | None:
    """Return a failed attempt up, if there is to be another."""
    waits = _waits(run, result, earlier)
    if not (waits or _is_retried(run, checkpoints, result, earlier)):
        return None
    try:
        checkpoints.note_given_up(run.redactor.model(result))
    except OSError:
        # A full disk: what cannot be noted is not given up.
        return None
    delay = (result.retry_after or 0.0) if waits else run.config.retry_delay
    run.emit(
        WorkerRetrying(
            worker_id=result.worker_id,
            attempt=result.attempts + 1,
            reason=str(result.reason),
            delay=delay,
            counted=not waits,
        )
    )
    if waits:
        return RetryLater(0.0, refused=True, resets_in=result.retry_after)
    return RetryLater(delay)


def _waits(run: RunContext, result: WorkerResult, earlier: Sequence[WorkerResult]) -> bool:
    """Return whether a worker that its provider refused waits for it: no retry is used up."""
    patience = run.config.rate_limit_wait
    if result.reason is not Reason.RATE_LIMITED or not patience:
        return False
    refusals = [one for one in (*earlier, result) if one.reason is Reason.RATE_LIMITED]
    if len(refusals) > MOST_REFUSALS or not _may_spend(run.config, (*earlier, result)):
        return False
    return _waited([*earlier, result]) + (result.retry_after or 0.0) <= patience


def _waited(attempts: Sequence[WorkerResult]) -> float:
    """Add up the seconds between the end of what was refused and the start of what came next."""
    waited = 0.0
    for one, after in pairwise(attempts):
        if one.reason is Reason.RATE_LIMITED and one.started_at and after.started_at:
            ended = one.started_at + timedelta(seconds=one.duration)
            waited += max(0.0, (after.started_at - ended).total_seconds())
    return waited


def _is_retried(
    run: RunContext, checkpoints: Checkpoints, result: WorkerResult, earlier: Sequence[WorkerResult]
) -> bool:
    config = run.config
    waited_for = Reason.RATE_LIMITED if config.rate_limit_wait else None
    counted = [one for one in (*earlier, result) if one.reason is not waited_for]
    if result.reason in (None, waited_for) or len(counted) > config.retries:
        return False
    if not (RETRIED[result.reason] or result.reason in config.retry_on):
        return False
    if not _may_spend(config, (*earlier, result)):
        return False
    # Of a resumed run, what cannot be found again may have a container that still goes on.
    return result.reason is not Reason.SETUP_FAILED or checkpoints.launch() is None


def _may_spend(config: ParallelConfig, attempts: Sequence[WorkerResult]) -> bool:
    budget, tokens = config.budget_per_worker, config.tokens_per_worker
    if budget is not None and sum(one.cost for one in attempts) >= budget:
        return False
    return tokens is None or sum(one.tokens or 0 for one in attempts) < tokens


def _archive_attempt(run: RunContext, spec: WorkerSpec, result: WorkerResult) -> None:
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
                worktree = open_worktree(
                    repository.top / spec.directory, spec.branch, marked=spec.is_named
                )
                worktree.refresh(repository, again=run.resumed)
                worktree.update(repository, base=commit, tip=run.base, again=run.resumed)
            except OrchestratorError:
                repository.move_branch(spec.branch, new=commit, old=run.base)
                raise
    except OrchestratorError as error:
        said = f"worker {spec.worker_id}: {spec.directory} was changed meanwhile ({error.message})"
        run.emit(Notice(message=f"{said}; attempt {result.attempts + 1} goes on from there"))
