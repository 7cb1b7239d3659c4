"""Retry failed workers, and continue workers with a message, without losing earlier work.

Archiving an attempt consists of these steps, each of which may be repeated:

    attempt.json             records the result in the state directory, and that another attempt
                             will follow
    refs/.../<run>/<N>/<K>   keeps the commits of attempt K of worker N; `<K>.continued` keeps those
                             of the user on top of them
    branch and worktree      are moved back to where the turn began, unless the user changed them
                             or the attempt was the turn's last
    worker-N.attempt-K       is the new name of the state directory; the names count the attempts
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from orchestrator.agents.base import AgentOutcome, AgentOutput
from orchestrator.base.errors import ConfigError, OrchestratorError, PlaceLostError
from orchestrator.base.events import Notice, TurnDone, TurnStarted, WorkerRetrying
from orchestrator.base.results import Reason, WorkerResult
from orchestrator.engine.interface.protocol import ExitStatus
from orchestrator.repository.checkouts.worktree import clear_place, open_worktree
from orchestrator.repository.repository import ATTEMPTS
from orchestrator.sandbox.supervision.output import log_files
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.state.worker.turns import (
    NextTurn,
    drop_turn,
    is_queued,
    note_turn,
    turn_after,
)
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.lifecycle import run_worker
from orchestrator.worker.prepare import show_worktree
from orchestrator.worker.steps.grants import read_spending, with_measured
from orchestrator.worker.turns.result_builder import (
    earlier_results,
    result_of_cancel,
    result_of_loss,
    with_attempts,
    with_note,
)
from orchestrator.worker.turns.retry_later import RetryLater
from orchestrator.worker.turns.sessions import has_lost_session, how_continued, note_lost_session
from orchestrator.worker.turns.turns import deliver, in_turn, message_about_checks

RETRIED: Mapping[Reason, bool] = {
    Reason.AGENT_FAILED: True,
    Reason.AGENT_ERROR: True,
    Reason.NO_REPORT: True,
    Reason.RATE_LIMITED: True,
    Reason.NETWORK_LOST: True,
    Reason.SERVICE_DIED: True,
    Reason.SETUP_FAILED: True,
    Reason.ENGINE_ERROR: True,
    # Another attempt would cost as much and end in the same way.
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
    Reason.UNFILTERED: False,
    Reason.INTERNAL_ERROR: False,
    Reason.DEPENDENCY: False,
    Reason.CONFLICT: False,
    Reason.CANCELLED: False,
}
"""By the reason of a failure: whether the worker is retried if the setting `retries` allows it."""


MOST_REFUSALS = 20
"""Maximum number of times that one worker is restarted after its provider refused requests."""


def attempt(worker: WorkerContext) -> WorkerResult | RetryLater:
    """Run the next attempt of a worker, or continue the attempt that another process began.

    Raises:
        EngineUnavailableError: The engine cannot be reached; a resumed run continues from here.
        UnfinishedError: The work could not be collected; a resumed run tries again.
    """
    earlier = earlier_results(worker)
    given_up = worker.checkpoints.attempt_result()
    if given_up is not None:
        earlier = [*earlier, given_up]
    under_way = given_up is None and worker.checkpoints.is_prepared
    if earlier and not under_way and worker.cancel.stop_asked:
        return with_attempts(result_of_cancel(worker, earlier[-1]), earlier[:-1])
    left = worker.budget.after(earlier)
    if given_up is not None:
        try:
            if left.is_spent:
                # After a resume, the worker's share of the run's budget may be smaller.
                raise ConfigError("nothing is left of the worker's budget", key="budget.spent")
            _archive_attempt(worker, given_up)
        except (OrchestratorError, OSError) as error:
            drop_turn(worker.directory)
            last = with_note(given_up, f"no further attempt could be prepared ({error})")
            return with_attempts(last, earlier[:-1])
    worker = replace(in_turn(worker), resumed=under_way)
    _tell_begin(worker)
    try:
        result = run_worker(replace(worker, budget=left))
    except PlaceLostError as error:
        result = _lose(worker, error, earlier)
    again = _again(worker, result, earlier)
    if again is not None:
        return again
    try:
        # For `--worktrees end`.
        show_worktree(worker)
    except (OrchestratorError, OSError) as error:
        result = with_note(result, f"the worktree could not be created ({error})")
    if earlier:
        with suppress(OSError):
            worker.checkpoints.note_last(worker.run.redactor.model(result))
    return _told_end(worker, with_attempts(result, earlier))


def _lose(
    worker: WorkerContext, error: PlaceLostError, earlier: Sequence[WorkerResult]
) -> WorkerResult:
    """Return the result of an attempt whose place is lost, and delete what is left of the place.

    What a node that nobody can reach reports later is then never asked for.
    """
    engine = worker.run.engine
    with suppress(OrchestratorError):
        for left in engine.leftovers(worker.labels(role="worker")):
            engine.remove(left)
    result = result_of_loss(worker, error, _cost_of(worker))
    before = _of_turn(worker, earlier)
    # protection: lost-attempt-is-made-again-once
    if any(known.restarts for known in before) or worker.cancel.stop_asked:
        return result
    return result.model_copy(update={"restarts": int(error.restarts)})


def _cost_of(worker: WorkerContext) -> AgentOutcome | None:
    """Return what an attempt reported before its place was lost; None if it never began."""
    stdout, stderr = log_files(worker.directory)
    if not stdout.exists():
        return None
    ended = ExitStatus(exit_code=137, oom_killed=False)
    outcome = worker.agent.outcome(AgentOutput(stdout=stdout, stderr=stderr), ended)
    return with_measured(outcome, read_spending(worker))


def _tell_begin(worker: WorkerContext) -> None:
    """Emit the event of a turn that begins with this attempt."""
    turn, number = worker.turn, len(worker.attempts()) + 1
    if turn is None or number != turn.first_attempt or worker.checkpoints.is_prepared:
        return
    worker.run.emit(
        TurnStarted(
            worker_id=worker.number,
            turn=turn.number,
            attempt=number,
            message=turn.begun_by.message,
            cause=turn.begun_by.cause,
            continued=how_continued(worker),
        )
    )


def _told_end(worker: WorkerContext, result: WorkerResult) -> WorkerResult:
    """Emit the event of a turn that has ended, and return the result."""
    for turn in result.turns[-1:]:
        worker.run.emit(TurnDone(worker_id=worker.number, turn=turn))
    return result


def _again(
    worker: WorkerContext, result: WorkerResult, earlier: Sequence[WorkerResult]
) -> RetryLater | None:
    """Record a failed attempt and return when to retry; return None if no other attempt follows."""
    waits = bool(result.restarts) or _waits(worker, result, earlier)
    lost = has_lost_session(worker, result)
    follows = not (waits or lost or _is_retried(worker, result, earlier))
    try:
        if follows and not _has_next_turn(worker, result, earlier):
            return None
        if lost:
            note_lost_session(worker)
        worker.checkpoints.note_given_up(worker.run.redactor.model(result))
    except OSError:
        # Full disk: without the record, a resumed run would not know of the next attempt.
        return None
    if follows:
        _told_end(worker, with_attempts(result, earlier))
        return RetryLater(0.0, next_turn=True)
    delay = (result.retry_after or 0.0) if waits else worker.config.retry_delay
    delay = 0.0 if lost else delay
    worker.run.emit(
        WorkerRetrying(
            worker_id=result.worker_id,
            attempt=result.attempts + 1,
            reason="its session could not be opened" if lost else str(result.reason),
            delay=delay,
            counted=not waits,
        )
    )
    if waits and not result.restarts:
        return RetryLater(0.0, refused=True, resets_in=result.retry_after)
    return RetryLater(delay)


def _has_next_turn(
    worker: WorkerContext, result: WorkerResult, earlier: Sequence[WorkerResult]
) -> bool:
    """Record the turn that follows, if a message waits or failed checks are sent back."""
    run, number = worker.run, worker.number
    if turn_after(worker.directory) is not None:
        return True
    network, directory = run.shared_network, run.directory
    ended_for_message = directory.end_of_turn_asked(number) and not run.cancel.stop_asked
    if worker.cancel.stop_asked and not ended_for_message:
        return False
    if is_queued(directory, number) and (network is None or network.come_back(number)):
        return deliver(worker.run, number)
    fixes = 0 if worker.turn is None else worker.turn.fixes
    # protection: failed-checks-are-sent-back-at-most-so-often
    if result.reason is not Reason.CHECKS_FAILED or fixes >= worker.config.fix_checks:
        return False
    # protection: failed-checks-are-sent-back-within-budget
    if worker.budget.after((*earlier, result)).is_spent:
        return False
    checks = worker.config.project.checks
    message = message_about_checks(checks, result, worker.directory, run.redactor)
    if message is None:
        return False
    note_turn(worker.directory, NextTurn(message=message, cause="checks"))
    return True


def _waits(worker: WorkerContext, result: WorkerResult, earlier: Sequence[WorkerResult]) -> bool:
    """Return whether a worker waits for its provider, which uses up none of its retries."""
    patience = worker.config.rate_limit_wait
    if result.reason is not Reason.RATE_LIMITED or not patience:
        return False
    attempts = [*earlier, result]
    refusals = [attempt for attempt in attempts if attempt.reason is Reason.RATE_LIMITED]
    if len(refusals) > MOST_REFUSALS or worker.budget.after(attempts).is_spent:
        return False
    # The seconds that the worker has waited because its provider refused requests.
    waited = 0.0
    for before, after in pairwise(attempts):
        if before.reason is Reason.RATE_LIMITED and before.started_at and after.started_at:
            ended = before.started_at + timedelta(seconds=before.duration)
            waited += max(0.0, (after.started_at - ended).total_seconds())
    return waited + (result.retry_after or 0.0) <= patience


def _is_retried(
    worker: WorkerContext, result: WorkerResult, earlier: Sequence[WorkerResult]
) -> bool:
    config = worker.config
    earlier = _of_turn(worker, earlier)
    waited_for = Reason.RATE_LIMITED if config.rate_limit_wait else None
    counted = [
        known
        for known in (*earlier, result)
        if known.reason is not waited_for and not known.restarts
    ]
    if result.reason in (None, waited_for) or len(counted) > config.retries:
        return False
    if not (RETRIED[result.reason] or result.reason in config.retry_on):
        return False
    if worker.budget.after((*earlier, result)).is_spent:
        return False
    # In a resumed run, a container that was not found may still be running.
    return result.reason is not Reason.SETUP_FAILED or worker.checkpoints.launch() is None


def _of_turn(worker: WorkerContext, earlier: Sequence[WorkerResult]) -> Sequence[WorkerResult]:
    """Return the earlier attempts of the present turn: each turn has its own retries."""
    return earlier if worker.turn is None else earlier[worker.turn.first_attempt - 1 :]


def _archive_attempt(worker: WorkerContext, result: WorkerResult) -> None:
    """Rename the state directory of a failed attempt, so that another attempt can be prepared."""
    run, root, checkpoints = worker.run, worker.directory, worker.checkpoints
    kept = run.directory.attempt(worker.number, result.attempts)
    start = checkpoints.start()
    ref = f"{ATTEMPTS}{run.directory.run_id}/{worker.number}/{result.attempts}"
    if start is None:
        with run.repository.lock():
            clear_place(run.repository, worker.spec, root)
    elif result.commit not in (None, start):
        run.repository.git.run("update-ref", ref, str(result.commit))
    begun = _start_of_turn(worker)
    follows = turn_after(worker.directory) is not None
    if worker.config.retry_from == "base" and not follows and result.commit not in (None, begun):
        _back_to(begun, worker, result)
    tip = run.repository.commit_of(worker.spec.ref)
    # The next attempt may remove from the branch what the user committed there.
    # protection: commits-of-user-stay-reachable
    if tip not in (None, worker.base, start, result.commit):
        run.repository.git.run("update-ref", f"{ref}.continued", str(tip))
    message = result.message
    if message is not None and str(kept) not in message:
        message = message.replace(str(root), str(kept))
    checkpoints.note_given_up(result.model_copy(update={"log": str(kept), "message": message}))
    root.rename(kept)


def _start_of_turn(worker: WorkerContext) -> str:
    """Return the commit from which the worker's turn started: the base in its first turn."""
    if worker.turn is None:
        return worker.base
    first = worker.run.directory.attempt(worker.number, worker.turn.first_attempt)
    return Checkpoints(first).start() or worker.checkpoints.start() or worker.base


def _back_to(base: str, worker: WorkerContext, result: WorkerResult) -> None:
    """Move the branch and the worktree back to a commit, unless the user has changed them."""
    spec, repository, commit = worker.spec, worker.run.repository, str(result.commit)
    again = worker.run.resumed
    try:
        with repository.lock():
            if repository.resolve(worker.spec.ref) != base:
                repository.move_branch(spec.branch, new=base, old=commit)
            if worker.run.checkouts is not None:
                return
            try:
                worktree = open_worktree(
                    repository.top / spec.directory, spec.branch, marked=spec.is_named
                )
                worktree.refresh(repository, again=again)
                worktree.update(repository, base=commit, tip=base, again=again)
            except OrchestratorError:
                repository.move_branch(spec.branch, new=commit, old=base)
                raise
    except OrchestratorError as error:
        changed = f"{spec.directory} was changed during the attempt ({error.message})"
        said = f"worker {spec.worker_id}: {changed}"
        worker.run.emit(
            Notice(message=f"{said}; attempt {result.attempts + 1} continues with the changes")
        )
