"""A slot for each of so many workers, and the next one's as soon as one is free."""

import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime

from orchestrator.checkpoints import Checkpoints
from orchestrator.context import RunContext
from orchestrator.errors import EngineUnavailableError, OrchestratorError
from orchestrator.events import Notice, RunDone, WorkerDone
from orchestrator.plan import WorkerSpec
from orchestrator.results import Reason, RunResult, WorkerResult, overall_status
from orchestrator.worker import failure, run_worker


def carry_out(
    run: RunContext, workers: tuple[WorkerSpec, ...], *, since: datetime | None = None
) -> RunResult:
    """Run all workers, those first that run already.

    Args:
        run: The run.
        workers: Its workers.
        since: When another process began it. Default: now.
    """
    started = time.monotonic()
    with ThreadPoolExecutor(run.config.workers, thread_name_prefix="worker") as pool:
        try:
            ordered = sorted(workers, key=lambda spec: not _is_under_way(run, spec))
            results = list(pool.map(lambda spec: _finish(run, spec), ordered))
        except BaseException:
            # Ctrl-C in a program that uses us: the pool waits for a grace then, not for deadlines.
            run.cancel.press(kill=False)
            raise
    results.sort(key=lambda result: result.worker_id)
    duration = time.monotonic() - started
    if since is not None:
        duration = (datetime.now(UTC) - since).total_seconds()
    result = RunResult(
        run_id=run.directory.run_id,
        status=overall_status(results),
        base=run.base,
        engine=run.features.version,
        duration=round(duration, 3),
        cost=sum(result.cost for result in results),
        results=results,
    )
    if not run.directory.left_open:
        with suppress(OSError):  # a full disk: the workers' results say the same
            run.directory.write_run_result(result)
    run.emit(RunDone(result=result))
    return result


def _is_under_way(run: RunContext, spec: WorkerSpec) -> bool:
    return Checkpoints(run.directory.worker(spec.worker_id)).launch() is not None


def _finish(run: RunContext, spec: WorkerSpec) -> WorkerResult:
    """Give a worker's result, whatever happens, and make it durable."""
    known = run.directory.result(spec.worker_id) if run.resumed else None
    if known is not None:
        run.emit(WorkerDone(result=known))
        return known
    if _is_called_off(run, spec):
        result = failure(run, spec, Reason.CANCELLED, "cancelled before it started")
        with suppress(OrchestratorError):
            run.repository.drop_branch(spec.branch, at=run.base)
    else:
        try:
            result = run_worker(run, spec)
        except EngineUnavailableError as error:
            return _left_open(run, spec, error)
        except Exception as error:  # noqa: BLE001  # the last guard: siblings must not suffer
            said = run.redactor.text(traceback.format_exc())
            with suppress(OSError), (run.directory.path / "internal-error.log").open("a") as file:
                file.write(said)
            result = failure(run, spec, Reason.INTERNAL_ERROR, f"internal error: {error!r}")
    result = run.redactor.model(result)
    try:
        run.directory.write_result(result)
    except OSError as error:
        # What cannot be kept can still be shown; the other workers' results must not go with it.
        number = spec.worker_id
        run.emit(Notice(message=f"the result of worker {number} could not be kept ({error})"))
    run.emit(WorkerDone(result=result))
    return result


def _left_open(run: RunContext, spec: WorkerSpec, error: EngineUnavailableError) -> WorkerResult:
    """Tell of a worker that nobody can say the end of now: it gets no result that lasts."""
    run.directory.left_open = True
    later = f"`orchestrator resume {run.directory.run_id}` sees to it once the engine is back"
    result = failure(run, spec, Reason.ENGINE_ERROR, f"{error.message}; {later}")
    run.emit(WorkerDone(result=result))
    return result


def _is_called_off(run: RunContext, spec: WorkerSpec) -> bool:
    checkpoints = Checkpoints(run.directory.worker(spec.worker_id))
    asked = run.cancel.asked or run.directory.stop_asked(spec.worker_id)
    # What was started once has a container to end and work to bring home.
    return asked and not checkpoints.prepared
