"""Start the agent's container of a worker, or continue to watch one that is already running."""

import time
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import partial

from orchestrator.agents.output.no_report import limits_named
from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    OrchestratorError,
    StartCancelledError,
    UnfinishedError,
)
from orchestrator.base.events import WaitCause, WorkerWaiting
from orchestrator.base.results import Reason
from orchestrator.engine.interface.protocol import Container
from orchestrator.engine.places.place import TREE, Place
from orchestrator.repository.git.command import Git
from orchestrator.sandbox.supervision.launch import (
    ContainerLimits,
    RunningContainer,
    launch,
    take_over,
)
from orchestrator.sandbox.supervision.output import LogOptions, WorkerLog
from orchestrator.sandbox.supervision.supervisor import attend
from orchestrator.sandbox.supervision.watchdog import AllowedPaths
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.state.worker.endings import Ending, Stop
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.steps.container_specs import agent_start
from orchestrator.worker.steps.dotenv import write_dotenv
from orchestrator.worker.steps.grants import admit_task, dismiss
from orchestrator.worker.steps.services import Services
from orchestrator.worker.workspace.layout import AGENT_STEP
from orchestrator.worker.workspace.mounts import Workspace

_VISIT = 60.0
"""Seconds between two questions to the place of a worker that waits for its start."""


def open_log(worker: WorkerContext) -> WorkerLog:
    """Create the log files of a worker's output.

    Raises:
        OSError: The disk is full.
    """
    return WorkerLog(
        worker.directory,
        worker.number,
        LogOptions(
            limit=worker.config.limits.log_limit,
            redactor=worker.run.redactor,
            triggers=worker.config.triggers,
        ),
        emit=worker.run.emit,
        new_reader=worker.agent.progress_reader,
    )


def run_task(
    worker: WorkerContext, workspace: Workspace, place: Place, log: WorkerLog, services: Services
) -> Ending:
    """Run the task unless it has ended; remove its container, and return how the task ended.

    Raises:
        EngineUnavailableError: The engine cannot be reached; a resumed run continues from here.
        UnfinishedError: The task's end could not be recorded, so its container stays; a resumed
            run reads its end and output from the container.
    """
    checkpoints, cancel = worker.checkpoints, worker.cancel
    with ExitStack() as stack:
        worker.times.begin("start")
        try:
            running = _start(worker, workspace, place, services, stack)
        except EngineUnavailableError:
            raise
        except StartCancelledError:
            stopped = Stop(Reason.CANCELLED, f"{cancel.why} before this worker started")
            return Ending(started_at=None, duration=0.0, exit_status=None, stopped=stopped)
        except (OrchestratorError, OSError) as error:
            return Ending(started_at=None, duration=0.0, exit_status=None, error=str(error))
        # Services share the gateway, which runs until they are removed.
        own = not worker.config.project.services
        follow = partial(worker.network_log.follow, again=worker.run.resumed)
        follower = follow(running.container) if own else None
        worker.times.begin("agent")
        try:
            ending = attend(
                running,
                log=log,
                cancel=cancel,
                emit=worker.run.emit,
                checkpoints=checkpoints,
            )
        except EngineUnavailableError:
            stack.pop_all()  # the container may continue to run, and needs its secrets
            raise
        except BaseException:
            # protection: container-is-removed-after-any-error
            _remove(running.container)
            dismiss(worker)
            raise
        worker.times.begin("stop")
        worker.times.count_as_stop(ending.stopping)
        ending = replace(ending, dead_services=tuple(services.dead(ending)))
        try:
            ending = _note_end(ending, log, checkpoints)
        finally:
            if follower is not None:
                follower.finish()
            dismiss(worker)
        # protection: ended-container-is-removed
        problem = _remove(running.container)
    return replace(ending, error=ending.error or problem)


def _start(
    worker: WorkerContext,
    workspace: Workspace,
    place: Place,
    services: Services,
    stack: ExitStack,
) -> RunningContainer:
    """Start the container of a worker, or return the container that another process started."""
    run, checkpoints = worker.run, worker.checkpoints
    terms = _limits(worker, workspace, place)
    found = place.step(AGENT_STEP) if run.resumed else None
    launched = checkpoints.launch()
    if found is None and launched is not None:
        run.engine.adopt(launched.container)  # which knows whether it was lost
        raise EngineError(
            "the worker's container is gone: another program removed it", key="container.removed"
        )
    secrets = stack.enter_context(
        run.request.secrets.laid_out(
            run.directory.run_id, worker.number, workspace.user, again=found is not None
        )
    )
    if found is None:
        with _turn(worker, place):
            token, step = admit_task(worker, place), place.spec.step(AGENT_STEP)
            start = agent_start(worker, workspace, secrets, token)
            start = services.connect(step, replace(start, network=worker.network_of(step)))
            # Written again, because setup may have overwritten the file, or other ports may have
            # been chosen.
            write = partial(write_dotenv, worker, workspace, place, services.variables())
            return launch(start, terms, checkpoints, created=write)
    try:
        if found.state().started_at is not None:
            return take_over(found, terms, checkpoints)
        with _turn(worker, place):
            return take_over(found, terms, checkpoints)
    except BaseException:
        found.remove()
        raise


def _turn(worker: WorkerContext, place: Place) -> AbstractContextManager[None]:
    """Return a context manager that waits until the run's rate of starts lets the worker start."""
    run = worker.run
    visited = time.monotonic()

    def has_left() -> bool:
        nonlocal visited
        if time.monotonic() > visited + _VISIT:
            visited = time.monotonic()
            # A place that nobody asks anything is abandoned. If it is lost, the start finds that.
            with suppress(EngineError):
                place.journal(0)
        return worker.cancel.stop_asked

    def tell(cause: WaitCause, reason: str) -> None:
        run.emit(WorkerWaiting(worker_id=worker.number, cause=cause, reason=reason))

    return run.pace.turn(has_left, worker.provider, tell=tell)


def _note_end(ending: Ending, log: WorkerLog, checkpoints: Checkpoints) -> Ending:
    log.finish()
    failure = None if log.failure is None else log.failure.strerror
    if ending.exit_status is not None and ending.exit_status.exit_code != 0:
        named = (limit for limit in limits_named(log.stderr) if limit not in ending.limits_hit)
        ending = replace(ending, limits_hit=(*ending.limits_hit, *named))
    ending = replace(ending, log_failure=failure)
    try:
        checkpoints.note_ending(ending)
    except OSError as error:
        # protection: container-stays-until-its-end-is-recorded
        raise UnfinishedError(
            f"the end of the worker's task could not be recorded: {error}", key="work.uncollected"
        ) from error
    return ending


def _remove(container: Container) -> str | None:
    try:
        container.remove()
    except OrchestratorError as error:
        return error.message
    return None


def _limits(worker: WorkerContext, workspace: Workspace, place: Place) -> ContainerLimits:
    config = worker.config
    return ContainerLimits(
        worker_id=worker.number,
        place=place,
        step=AGENT_STEP,
        timeout=config.timeout,
        limits=config.limits,
        growing=workspace.growing,
        budget=worker.budget.budget,
        tokens=worker.budget.tokens,
        max_steps=config.max_steps,
        ports=worker.ports,
        triggers=config.triggers,
        scope=_scope(config.triggers.paths, workspace, place),
        switch=worker.run.switch,
    )


def _scope(paths: tuple[str, ...], workspace: Workspace, place: Place) -> AllowedPaths | None:
    if not paths:
        return None
    worktree = workspace.worktree
    excluded = {"core.excludesFile": str(workspace.store.harvest / "info" / "exclude")}
    return AllowedPaths(
        paths=paths,
        place=place,
        part=TREE,
        git=Git(worktree.git_dir, work_tree=worktree.path, config=excluded),
    )
