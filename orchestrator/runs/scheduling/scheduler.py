"""Run a limited number of workers at a time; when a worker ends, the next worker starts."""

import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache

from orchestrator.base.errors import EngineUnavailableError, OrchestratorError, UnfinishedError
from orchestrator.base.events import Notice, RunDone, WorkerDone
from orchestrator.base.results import Reason, RunResult, Status, WorkerResult, sum_up
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.workflow.order import Wait
from orchestrator.repository.commits.task_merge import MergeConflict
from orchestrator.runs.scheduling.dependencies import Results, apply_dependencies
from orchestrator.runs.scheduling.queue import Queue, make_queue
from orchestrator.runs.scheduling.start_gate import StartGate, WaitReports
from orchestrator.sandbox.supervision.supervisor import TICK
from orchestrator.state.worker.turns import is_queued
from orchestrator.worker.context import RunContext, WorkerContext, for_worker
from orchestrator.worker.turns.result_builder import (
    earlier_results,
    result_of_failure,
    result_of_skip,
    with_attempts,
)
from orchestrator.worker.turns.retry_later import RetryLater
from orchestrator.worker.turns.turns import reopen

_GLANCE = 1.0
"""Seconds between two searches for messages to workers, while nothing else is awaited."""
Attempt = Callable[[WorkerContext], WorkerResult | RetryLater]
"""Function that runs a worker once, in its container."""


def run_workers(
    run: RunContext,
    workers: tuple[WorkerSpec, ...],
    attempt: Attempt,
    *,
    since: datetime | None = None,
) -> RunResult:
    """Run all workers of a run, and return the run's result.

    A resumed run first collects the workers that have ended or are still running.

    Args:
        run: The run.
        workers: The run's workers.
        attempt: Runs a worker once.
        since: Time when an earlier process started the run. Default: now.
    """
    started = time.monotonic()
    try:
        with nullcontext() if run.broker is None else run.broker.keep_running():
            results = _Slots(run, workers, attempt).results()
    finally:
        run.switch.close(forget=not run.outcome.resumable)
    duration = time.monotonic() - started
    if since is not None:
        duration = (datetime.now(UTC) - since).total_seconds()
    result = sum_up(
        results,
        run_id=run.directory.run_id,
        base=run.base,
        engine=run.features.version,
        duration=duration,
    )
    if not run.outcome.resumable:
        with suppress(OSError):  # full disk: the result can be computed from the workers' results
            run.directory.write_run_result(result)
    run.emit(RunDone(result=result))
    return result


@dataclass(frozen=True)
class _Turn:
    """A worker that waits until it may start."""

    worker: WorkerContext
    due: float = 0.0
    """Earliest time of the worker's start, on the monotonic clock."""
    again: bool = False

    @property
    def spec(self) -> WorkerSpec:
        """The worker's specification."""
        return self.worker.spec


class _Slots:
    """Runs every worker, and repeats failed workers; other workers run while a retry waits."""

    def __init__(self, run: RunContext, workers: Iterable[WorkerSpec], attempt: Attempt) -> None:
        self._run = run
        self._attempt = attempt
        self._waiting = [_Turn(for_worker(run, spec)) for spec in workers]
        self._running: dict[Future[WorkerResult | RetryLater], WorkerContext] = {}
        self._results: list[WorkerResult] = []
        self._done: dict[str, WorkerResult] = {}
        self._known = {turn.spec.worker_id: turn.spec for turn in self._waiting}
        self._queue: Queue = make_queue(run)
        self._gate = StartGate(run)
        self._waits = WaitReports(run.emit, run.config.workers)

    def results(self) -> list[WorkerResult]:
        # A resumed run already has results.
        for turn in list(self._waiting) if self._run.resumed else ():
            number, directory = turn.worker.number, self._run.directory
            known = directory.result(number)
            if known is not None and reopen(self._run, number) is not None:
                self._waiting.remove(turn)
                self._waiting.append(_Turn(for_worker(self._run, turn.spec), again=True))
            elif known is not None:
                self._waiting.remove(turn)
                self._run.emit(WorkerDone(result=known))
                self._gate.note(turn.worker.number, known)
                self._keep(turn.spec, known)
        with ThreadPoolExecutor(self._run.config.workers, thread_name_prefix="worker") as pool:
            try:
                while self._reopen() or self._waiting or self._running:
                    self._skip()
                    self._fill(pool)
                    for ended in self._wait_for_end():
                        self._note(self._running.pop(ended), ended.result())
            except BaseException:
                # After Ctrl-C in a program that uses this library, the pool then waits only for the
                # grace period, not for the workers' deadlines.
                self._run.cancel.press(kill=False)
                raise
        return self._results

    def _reopen(self) -> bool:
        """Begin another turn of each worker that has ended and got a message; return whether any.

        A worker without the network that it needs is continued after the end of the run.
        """
        run, number_before = self._run, len(self._waiting)
        for result in list(self._results) if not run.cancel.stop_asked else ():
            number = result.worker_id
            if number not in self._known or not is_queued(run.directory, number):
                continue
            network = run.shared_network
            if run.directory.stop_asked(number) and not run.directory.end_of_turn_asked(number):
                continue
            if (network is None or network.come_back(number)) and reopen(run, number):
                self._results.remove(result)
                self._gate.reopen(number)
                self._waiting.append(_Turn(for_worker(run, self._known[number]), again=True))
        return len(self._waiting) > number_before

    def _skip(self) -> None:
        """Record the results of workers that will never run."""
        fresh = {turn.worker.number: turn for turn in self._waiting if not turn.again}
        for skip in self._queue.skips([turn.spec for turn in fresh.values()]):
            turn = fresh[skip.spec.worker_id]
            self._waiting.remove(turn)
            if self._run.outcome.resumable:
                why = "the worker did not start, because the result of another worker is missing"
                result = _left_open(turn.worker, UnfinishedError(why, key="worker.not-started"))
            else:
                result = result_of_skip(turn.worker, skip.reason, skip.message)
                _give_back(turn.worker)
                result = _record(self._run, result)
            self._note(turn.worker, result)

    def _free(self) -> int:
        return self._run.config.workers - len(self._running)

    def _fill(self, pool: ThreadPoolExecutor) -> None:
        # Cancelled and resumed workers need not wait.
        numbers = self._numbers_to_start_at_once() if self._free() else frozenset[int]()
        due = self._due(numbers)
        urgent = [turn for turn in due if turn.worker.number in numbers][: self._free()]
        free = self._free() - len(urgent)
        taken = {turn.worker.number for turn in urgent}
        rest = [turn for turn in due if turn.worker.number not in taken]
        running = [worker.spec for worker in self._running.values()]
        beside = [*running, *(turn.spec for turn in urgent)]
        found = self._queue.next([turn.spec for turn in rest], beside, free=free)
        names = {spec.worker_id for spec in found.started}
        for turn in (*urgent, *(turn for turn in rest if turn.worker.number in names)):
            worker, at_once = turn.worker, self._starts_at_once(turn.worker)
            if not (at_once or self._gate.is_open(worker)):
                continue
            self._waiting.remove(turn)
            self._waits.forget(worker.number)
            others = [turn for turn in self._waiting if not self._gate.has_share(turn.worker)]
            given = self._gate.admit(worker, len(others), runs=at_once)
            if given is None:
                why = "nothing is left of the run's budget"
                result = result_of_failure(worker, Reason.BUDGET, why, status=Status.PARTIAL)
                _give_back(worker)
                self._note(worker, _record(worker.run, result))
            else:
                started = replace(worker, budget=given)
                self._running[pool.submit(_finish, started, dict(self._done), self._attempt)] = (
                    worker
                )
        self._waits.note(dict(self._reasons(found.held)))

    def _reasons(self, held: Mapping[int, Wait]) -> Iterator[tuple[int, Wait]]:
        """Yield number and reason of each waiting worker, except workers whose retry is not due."""
        now, closed = time.monotonic(), cache(self._gate.why_closed)
        waiting = [turn.worker for turn in self._waiting if turn.due <= now]
        waits = {**held, **self._queue.reasons_to_wait([worker.spec for worker in waiting])}
        for worker in waiting:
            wait = waits.get(worker.number) or closed(worker.provider)
            if wait is None and not self._free():
                wait = self._waits.slot
            if wait is not None:
                yield worker.number, wait

    def _starts_at_once(self, worker: WorkerContext) -> bool:
        return worker.cancel.stop_asked or (
            self._run.resumed
            and worker.checkpoints.attempt_result() is None
            and worker.checkpoints.launch() is not None
        )

    def _numbers_to_start_at_once(self) -> frozenset[int]:
        """Return the numbers of cancelled workers, and of workers started by an earlier process."""
        run = self._run
        if run.cancel.stop_asked or run.resumed:
            waiting = (turn.worker for turn in self._waiting)
            return frozenset(worker.number for worker in waiting if self._starts_at_once(worker))
        return run.directory.stop_requests()

    def _due(self, at_once: Collection[int]) -> list[_Turn]:
        """Return the workers that may start now, retries first; workers in `at_once` never wait."""
        if not self._free():
            return []
        found: dict[tuple[str, str | None], bool] = {}

        def is_open(worker: WorkerContext) -> bool:
            """Return whether the worker's provider accepts another worker now."""
            key = (worker.agent.name, worker.spec.model)
            if key not in found:
                found[key] = self._gate.is_open(worker)
            return found[key]

        now = time.monotonic()
        due = [
            turn
            for turn in self._waiting
            if turn.worker.number in at_once or (turn.due <= now and is_open(turn.worker))
        ]
        return sorted(due, key=lambda turn: not turn.again)

    def _wait_for_end(self) -> Collection[Future[WorkerResult | RetryLater]]:
        """Wait until a worker ends, or until a waiting worker may be able to start."""
        if not self._running:
            self._run.cancel.wait(TICK)
            return ()
        is_awaited = bool(self._waiting) and self._free() > 0
        # Messages for workers that have ended are looked for now and then.
        return wait(self._running, TICK if is_awaited else _GLANCE, FIRST_COMPLETED).done

    def _note(self, worker: WorkerContext, came: WorkerResult | RetryLater) -> None:
        self._gate.note(worker.number, came)
        if isinstance(came, RetryLater):
            if came.next_turn:
                worker = for_worker(self._run, worker.spec)
            self._waiting.append(_Turn(worker, due=time.monotonic() + came.delay, again=True))
            return
        self._keep(worker.spec, came)
        bad = came.status in (Status.FAILED, Status.TIMEOUT)
        has_failed = bad and came.reason is not Reason.CANCELLED
        if self._run.config.fail_fast and has_failed and not self._run.outcome.resumable:
            why = f"cancelled: worker {worker.number} failed ({came.reason})"
            self._run.cancel.press(kill=False, why=why)

    def _keep(self, spec: WorkerSpec, result: WorkerResult) -> None:
        self._results.append(result)
        if spec.name is not None:
            self._done[spec.name] = result
            workflow = self._run.request.workflow
            most = workflow.max_latency if workflow else None
            if most is not None and result.duration > most:
                took = f"{result.duration:.1f} s, `maxLatency` is {most:g} s"
                self._run.emit(Notice(message=f"task `{spec.name}` took {took}"))
        self._queue.note(spec, result)


def _finish(worker: WorkerContext, done: Results, attempt: Attempt) -> WorkerResult | RetryLater:
    """Run a worker once; return its stored result, or RetryLater for another attempt."""
    run = worker.run
    if worker.cancel.stop_asked and not worker.has_begun():
        why = f"{worker.cancel.why} before this worker started"
        result: WorkerResult | RetryLater = result_of_failure(worker, Reason.CANCELLED, why)
        _give_back(worker)
    else:
        try:
            result = _attempt(worker, done, attempt)
        except (EngineUnavailableError, UnfinishedError) as error:
            return _left_open(_as_it_is(worker), error)
        except Exception as error:  # noqa: BLE001  # the last guard: siblings must not suffer
            said = run.redactor.text(traceback.format_exc())
            with suppress(OSError), (run.directory.path / "internal-error.log").open("a") as file:
                file.write(said)
            worker = _as_it_is(worker)
            result = result_of_failure(worker, Reason.INTERNAL_ERROR, f"internal error: {error!r}")
            result = with_attempts(result, earlier_results(worker))
    if isinstance(result, RetryLater):
        return result
    run.ports.release(worker.number)
    return _record(run, result)


def _as_it_is(worker: WorkerContext) -> WorkerContext:
    """Return the worker with its own base commit, if that commit is recorded by now."""
    return for_worker(worker.run, worker.spec)


def _attempt(worker: WorkerContext, done: Results, attempt: Attempt) -> WorkerResult | RetryLater:
    try:
        worker = apply_dependencies(worker, done)
    except MergeConflict as error:
        _give_back(worker)
        return result_of_failure(worker, Reason.CONFLICT, error.message)
    except EngineUnavailableError:
        raise
    except (OrchestratorError, OSError) as error:
        if worker.has_begun():
            # The worker's container may be running, and its work will be harvested.
            raise UnfinishedError(str(error), key="work.uncollected") from error
        return result_of_failure(_as_it_is(worker), Reason.SETUP_FAILED, str(error))
    return attempt(worker)


def _record(run: RunContext, result: WorkerResult) -> WorkerResult:
    """Remove secrets from a worker's result, write the result to disk, and emit its event."""
    result = run.redactor.model(result)
    try:
        run.directory.write_result(result)
    except OSError as error:
        # A result that cannot be written can still be shown, and the results of the other workers
        # must not be lost with it. A resumed run makes it again.
        run.outcome.leave_resumable()
        number = result.worker_id
        run.emit(Notice(message=f"the result of worker {number} could not be written ({error})"))
    run.emit(WorkerDone(result=result))
    return result


def _give_back(worker: WorkerContext) -> None:
    """Delete the branch of a worker that never started."""
    with suppress(OrchestratorError):
        worker.run.repository.drop_branch(worker.spec.branch, at=worker.base)


def _left_open(worker: WorkerContext, error: OrchestratorError) -> WorkerResult:
    """Report that a worker's end is unknown, so that only a resumed run can write its result."""
    run = worker.run
    run.outcome.leave_resumable()
    later = f"fix this, then run `orchestrator resume {run.directory.run_id}`"
    result = result_of_failure(worker, Reason.ENGINE_ERROR, f"{error.message}; {later}")
    result = run.redactor.model(with_attempts(result, earlier_results(worker)))
    run.emit(WorkerDone(result=result))
    return result
