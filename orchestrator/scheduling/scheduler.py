"""A slot for each of so many workers, and the next one's as soon as one is free."""

import time
import traceback
from collections.abc import Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.errors import EngineUnavailableError, OrchestratorError, UnfinishedError
from orchestrator.events import Notice, RunDone, WorkerDone
from orchestrator.execution.supervisor import TICK
from orchestrator.git.merge import MergeConflict
from orchestrator.results import Reason, RunResult, Status, WorkerResult, sum_up
from orchestrator.scheduling.budget import BudgetShare
from orchestrator.scheduling.dependencies import Results, apply_dependencies
from orchestrator.scheduling.queue import Queue, Skipped, make_queue
from orchestrator.scheduling.start_gate import StartGate
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.worker.agent_container import cancel_of
from orchestrator.worker.attempts import RetryLater, attempt, has_begun, with_attempt_totals
from orchestrator.worker.context import RunContext, with_config
from orchestrator.worker.lifecycle import failure
from orchestrator.worker_spec import WorkerSpec


def run_workers(
    run: RunContext, workers: tuple[WorkerSpec, ...], *, since: datetime | None = None
) -> RunResult:
    """Run all workers, those first that are done or run already.

    Args:
        run: The run.
        workers: Its workers.
        since: When another process began it. Default: now.
    """
    started = time.monotonic()
    try:
        results = _Slots(run, workers).results()
    finally:
        run.switch.close(forget=not run.directory.left_open)
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
    if not run.directory.left_open:
        with suppress(OSError):  # a full disk: the workers' results say the same
            run.directory.write_run_result(result)
    run.emit(RunDone(result=result))
    return result


@dataclass(frozen=True)
class _Turn:
    """A worker that waits for a slot."""

    spec: WorkerSpec
    due: float = 0.0
    """The moment before which it is not to be started."""
    again: bool = False


class _Slots:
    """Gives every worker a slot, and again where it is to be retried; none waits in its slot."""

    def __init__(self, run: RunContext, workers: Iterable[WorkerSpec]) -> None:
        self._run = run
        self._waiting = [_Turn(spec) for spec in workers]
        self._running: dict[Future[WorkerResult | RetryLater], WorkerSpec] = {}
        self._results: list[WorkerResult] = []
        self._done: dict[str, WorkerResult] = {}
        self._queue: Queue = make_queue(run)
        self._rations = StartGate(run)

    def results(self) -> list[WorkerResult]:
        self._take_known()
        with ThreadPoolExecutor(self._run.config.workers, thread_name_prefix="worker") as pool:
            try:
                while self._waiting or self._running:
                    self._skip()
                    self._fill(pool)
                    for ended in self._ended():
                        self._note(self._running.pop(ended), ended.result())
            except BaseException:
                # Ctrl-C in a program that uses us: the pool waits for a grace then, not for
                # deadlines.
                self._run.cancel.press(kill=False)
                raise
        return self._results

    def _take_known(self) -> None:
        """Take over the results that are there from before a resume."""
        for turn in list(self._waiting) if self._run.resumed else ():
            known = self._run.directory.result(turn.spec.worker_id)
            if known is not None:
                self._waiting.remove(turn)
                self._run.emit(WorkerDone(result=known))
                self._rations.note(turn.spec, known)
                self._keep(turn.spec, known)

    def _skip(self) -> None:
        """Give those their result that are never to run."""
        fresh = [turn.spec for turn in self._waiting if not turn.again]
        for skip in self._queue.skips(fresh):
            self._waiting = [turn for turn in self._waiting if turn.spec is not skip.spec]
            self._note(skip.spec, _skipped(self._run, skip))

    def _free(self) -> int:
        return self._run.config.workers - len(self._running)

    def _fill(self, pool: ThreadPoolExecutor) -> None:
        for turn in self._chosen():
            spec, at_once = turn.spec, self._waits_for_nobody(turn.spec)
            if not (at_once or self._rations.is_open(spec)):
                continue
            self._waiting.remove(turn)
            given = self._share(spec, at_once=at_once)
            if given is None:
                self._note(spec, _broke(self._run, spec))
            else:
                began = pool.submit(_finish, self._run, spec, dict(self._done), given)
                self._running[began] = spec

    def _share(self, spec: WorkerSpec, *, at_once: bool) -> BudgetShare | None:
        others = [turn for turn in self._waiting if not self._rations.has_share(turn.spec)]
        return self._rations.admit(spec, len(others), runs=at_once)

    def _chosen(self) -> list[_Turn]:
        """Return those that start now: what runs already or is called off waits for nobody."""
        due = self._due()
        at_once = [turn for turn in due if self._waits_for_nobody(turn.spec)][: self._free()]
        free = self._free() - len(at_once)
        rest = [turn for turn in due if turn not in at_once]
        beside = [*self._running.values(), *(turn.spec for turn in at_once)]
        chosen = self._queue.next([turn.spec for turn in rest], beside, free=free)
        return at_once + [turn for turn in rest if turn.spec in chosen]

    def _waits_for_nobody(self, spec: WorkerSpec) -> bool:
        return cancel_of(self._run, spec).asked or (
            self._run.resumed and _is_under_way(self._run, spec)
        )

    def _due(self) -> list[_Turn]:
        """Return those that may start, or have nothing to wait for: retries first."""
        if not self._free():
            return []
        now = time.monotonic()
        due = [
            turn
            for turn in self._waiting
            if self._waits_for_nobody(turn.spec)
            or (turn.due <= now and self._rations.is_open(turn.spec))
        ]
        return sorted(due, key=lambda turn: not turn.again)

    def _ended(self) -> Collection[Future[WorkerResult | RetryLater]]:
        """Wait for the end of one, but not past the time of another that could start."""
        if not self._running:
            self._run.cancel.wait(TICK)
            return ()
        is_awaited = bool(self._waiting) and self._free() > 0
        return wait(self._running, TICK if is_awaited else None, FIRST_COMPLETED).done

    def _note(self, spec: WorkerSpec, came: WorkerResult | RetryLater) -> None:
        self._rations.note(spec, came)
        if isinstance(came, RetryLater):
            self._waiting.append(_Turn(spec, due=time.monotonic() + came.delay, again=True))
            return
        self._keep(spec, came)
        if self._run.config.fail_fast and _has_failed(came) and not self._run.directory.left_open:
            why = f"cancelled: worker {spec.worker_id} failed ({came.reason})"
            self._run.cancel.press(kill=False, why=why)

    def _keep(self, spec: WorkerSpec, result: WorkerResult) -> None:
        self._results.append(result)
        if spec.name is not None:
            self._done[spec.name] = result
            self._tell_slow(spec.name, result)
        self._queue.note(spec, result)

    def _tell_slow(self, name: str, result: WorkerResult) -> None:
        most = self._run.workflow.max_latency if self._run.workflow else None
        if most is not None and result.duration > most:
            took = f"{result.duration:.1f} s, `maxLatency` is {most:g} s"
            self._run.emit(Notice(message=f"task `{name}` took {took}"))


def _has_failed(result: WorkerResult) -> bool:
    bad = result.status in (Status.FAILED, Status.TIMEOUT)
    return bad and result.reason is not Reason.CANCELLED


def _is_under_way(run: RunContext, spec: WorkerSpec) -> bool:
    checkpoints = Checkpoints(run.directory.worker(spec.worker_id))
    return checkpoints.given_up() is None and checkpoints.launch() is not None


def _finish(
    run: RunContext, spec: WorkerSpec, done: Results, given: BudgetShare
) -> WorkerResult | RetryLater:
    """Return a worker's result, whatever happens, and make it durable; or say that it goes on."""
    if _is_called_off(run, spec):
        why = f"{cancel_of(run, spec).why} before it started"
        result: WorkerResult | RetryLater = failure(run, spec, Reason.CANCELLED, why)
        _give_back(run, spec)
    else:
        try:
            result = _attempt(run, spec, done, given)
        except (EngineUnavailableError, UnfinishedError) as error:
            return _left_open(run, spec, error)
        except Exception as error:  # noqa: BLE001  # the last guard: siblings must not suffer
            said = run.redactor.text(traceback.format_exc())
            with suppress(OSError), (run.directory.path / "internal-error.log").open("a") as file:
                file.write(said)
            result = failure(run, spec, Reason.INTERNAL_ERROR, f"internal error: {error!r}")
            result = with_attempt_totals(run, spec, result)
    if isinstance(result, RetryLater):
        return result
    run.ports.release(spec.worker_id)
    return _kept(run, spec, result)


def _attempt(
    run: RunContext, spec: WorkerSpec, done: Results, given: BudgetShare
) -> WorkerResult | RetryLater:
    asked = spec.task
    try:
        run, spec = apply_dependencies(run, spec, done)
    except MergeConflict as error:
        _give_back(run, spec)
        return failure(run, spec, Reason.CONFLICT, error.message)
    except EngineUnavailableError:
        raise
    except (OrchestratorError, OSError) as error:
        if has_begun(run, spec):
            # Its container may run, and what it wrote is to be brought home.
            raise UnfinishedError(str(error)) from error
        return failure(run, spec, Reason.SETUP_FAILED, str(error))
    came = attempt(with_config(run, given.over(run.config)), spec)
    # What others came to, and it was told, stands in their results.
    return came if isinstance(came, RetryLater) else came.model_copy(update={"task": asked})


def _kept(run: RunContext, spec: WorkerSpec, result: WorkerResult) -> WorkerResult:
    """Make a result durable, and tell of it."""
    result = run.redactor.model(result)
    try:
        run.directory.write_result(result)
    except OSError as error:
        # What cannot be kept can still be shown; the other workers' results must not go with it.
        # A resume makes it again, and needs what the run was given.
        run.directory.left_open = True
        number = spec.worker_id
        run.emit(Notice(message=f"the result of worker {number} could not be kept ({error})"))
    run.emit(WorkerDone(result=result))
    return result


def _skipped(run: RunContext, skip: Skipped) -> WorkerResult:
    if run.directory.left_open:
        return _left_open(run, skip.spec, UnfinishedError("it waits for another worker's end"))
    result = failure(run, skip.spec, skip.reason or Reason.DEPENDENCY, skip.message)
    if skip.reason is None:
        result = result.model_copy(update={"status": Status.SUCCESS, "reason": None})
    _give_back(run, skip.spec)
    return _kept(run, skip.spec, result)


def _broke(run: RunContext, spec: WorkerSpec) -> WorkerResult:
    result = failure(run, spec, Reason.BUDGET, "nothing of the run's budget is left")
    _give_back(run, spec)
    return _kept(run, spec, result.model_copy(update={"status": Status.PARTIAL}))


def _give_back(run: RunContext, spec: WorkerSpec) -> None:
    """Let go of the branch of a worker that never began."""
    with suppress(OrchestratorError):
        base = run.directory.base_of(spec.worker_id) or run.base
        run.repository.drop_branch(spec.branch, at=base)


def _left_open(run: RunContext, spec: WorkerSpec, error: OrchestratorError) -> WorkerResult:
    """Tell of a worker that nobody can say the end of now: it gets no result that lasts."""
    run.directory.left_open = True
    later = f"`orchestrator resume {run.directory.run_id}` sees to it once that is mended"
    result = failure(run, spec, Reason.ENGINE_ERROR, f"{error.message}; {later}")
    result = with_attempt_totals(run, spec, result)
    run.emit(WorkerDone(result=result))
    return result


def _is_called_off(run: RunContext, spec: WorkerSpec) -> bool:
    return cancel_of(run, spec).asked and not has_begun(run, spec)
