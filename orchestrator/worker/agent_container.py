"""One worker's container: started, or found where another process left it, and watched."""

from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from orchestrator.agents.output.limit_hints import limits_named
from orchestrator.engine.labels import DEADLINE
from orchestrator.engine.protocol import Container
from orchestrator.errors import EngineError, EngineUnavailableError, OrchestratorError
from orchestrator.execution.cancel import Cancel
from orchestrator.execution.launch import ContainerLimits, launch, take_over
from orchestrator.execution.output import WorkerLog
from orchestrator.execution.start_throttle import StartCancelledError
from orchestrator.execution.supervisor import attend
from orchestrator.execution.watchdog import AllowedPaths
from orchestrator.git.command import Git
from orchestrator.results import Reason
from orchestrator.state.checkpoints import Checkpoints, Launch
from orchestrator.state.endings import Ending, Stop
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.container_specs import worker_container
from orchestrator.worker.context import RunContext, labels, provider_for
from orchestrator.worker.dotenv import write_dotenv
from orchestrator.worker.services import Services
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.mounts import Workspace


@dataclass(frozen=True)
class WorkerCancel:
    """Asked for the whole run, or for this worker by another process."""

    run: Cancel
    directory: RunDirectory
    worker_id: int

    @property
    def asked(self) -> bool:
        return self.run.asked or self.directory.stop_asked(self.worker_id)

    @property
    def killed(self) -> bool:
        return self.run.killed or self.directory.kill_asked(self.worker_id)

    @property
    def why(self) -> str:
        return self.run.why


def cancel_of(run: RunContext, spec: WorkerSpec) -> WorkerCancel:
    """Return a worker's cancel button."""
    return WorkerCancel(run.cancel, run.directory, spec.worker_id)


def open_log(run: RunContext, spec: WorkerSpec) -> WorkerLog:
    """Open the files that a worker's output goes to.

    Raises:
        OSError: There is no room for them.
    """
    return WorkerLog(
        run.directory.worker(spec.worker_id),
        spec.worker_id,
        emit=run.emit,
        new_reader=run.agent.progress_reader,
        limit=run.config.limits.log_limit,
        redactor=run.redactor,
        triggers=run.config.triggers,
    )


def run_task(
    run: RunContext,
    spec: WorkerSpec,
    workspace: Workspace,
    checkpoints: Checkpoints,
    log: WorkerLog,
    services: Services,
) -> Ending:
    """Let the task run to its end, unless it did; nothing of its container is left.

    Raises:
        EngineUnavailableError: The engine went away; all is left for whoever resumes the run.
    """
    cancel = cancel_of(run, spec)
    terms = _limits(run, spec, workspace)
    with ExitStack() as stack:
        try:
            container, launched = _container(
                run, spec, workspace, terms, checkpoints, stack, services
            )
        except EngineUnavailableError:
            raise
        except StartCancelledError:
            stopped = Stop(Reason.CANCELLED, f"{cancel.why} before it started")
            return Ending(started_at=None, duration=0.0, exit_status=None, stopped=stopped)
        except (OrchestratorError, OSError) as error:
            return Ending(started_at=None, duration=0.0, exit_status=None, error=str(error))
        try:
            ending = attend(
                container, terms, launched,
                log=log, cancel=cancel, emit=run.emit, checkpoints=checkpoints,
            )  # fmt: skip
        except EngineUnavailableError:
            stack.pop_all()  # the container may run on, and needs its secrets
            raise
        except BaseException:
            _removed(container)
            raise
        services.look()
        ending = _noted(ending, log, checkpoints)
        problem = _removed(container)
    return replace(ending, error=ending.error or problem)


def _container(
    run: RunContext,
    spec: WorkerSpec,
    workspace: Workspace,
    terms: ContainerLimits,
    checkpoints: Checkpoints,
    stack: ExitStack,
    services: Services,
) -> tuple[Container, Launch]:
    """Start the worker's container, or find the one that another process started."""
    found = _find(run, spec) if run.resumed else None
    called_off = partial(_is_called_off, run, spec)
    if found is None and checkpoints.launch() is not None:
        raise EngineError("its container is gone: something else removed it")
    secrets = stack.enter_context(
        run.secrets.laid_out(
            run.directory.run_id, spec.worker_id, workspace.user, again=found is not None
        )
    )
    if found is None:
        with run.pace.turn(called_off, provider_for(run, spec)):
            described = services.network_of(worker_container(run, spec, workspace, secrets))
            # Setup may have written the file anew, or a port have been taken meanwhile.
            write = partial(write_dotenv, run, spec, workspace, services.variables())
            return launch(run.engine, described, terms, checkpoints, created=write)
    try:
        if found.state().started_at is not None:
            return found, take_over(found, terms, checkpoints)
        with run.pace.turn(called_off, provider_for(run, spec)):
            return found, take_over(found, terms, checkpoints)
    except BaseException:
        found.remove()
        raise


def _is_called_off(run: RunContext, spec: WorkerSpec) -> bool:
    return cancel_of(run, spec).asked


def _find(run: RunContext, spec: WorkerSpec) -> Container | None:
    wanted = labels(run, spec, role="worker")
    wanted.pop(DEADLINE, None)
    attempts = (path for _, path in run.directory.attempts(spec.worker_id))
    earlier = {launched.container for path in attempts if (launched := Checkpoints(path).launch())}
    found = (left.id for left in run.engine.leftovers(wanted) if left.kind == "container")
    ids = [container for container in found if container not in earlier]
    return run.engine.adopt(ids[0]) if ids else None


def _noted(ending: Ending, log: WorkerLog, checkpoints: Checkpoints) -> Ending:
    log.finish()
    failure = None if log.failure is None else log.failure.strerror
    ending = replace(_with_last_words(ending, log), log_failure=failure)
    with suppress(OSError):  # a full disk: what it wrote can still be brought home, by us
        checkpoints.note_ending(ending)
    return ending


def _removed(container: Container) -> str | None:
    try:
        container.remove()
    except OrchestratorError as error:
        return error.message
    return None


def _limits(run: RunContext, spec: WorkerSpec, workspace: Workspace) -> ContainerLimits:
    return ContainerLimits(
        worker_id=spec.worker_id,
        timeout=run.config.timeout,
        limits=run.config.limits,
        writable=workspace.writable(),
        budget=run.config.budget_per_worker,
        tokens=run.config.tokens_per_worker,
        max_steps=run.config.max_steps,
        ports=run.ports.of(spec.worker_id, run.config.isolation.ports),
        triggers=run.config.triggers,
        scope=_scope(run, workspace),
        switch=run.switch,
    )


def _scope(run: RunContext, workspace: Workspace) -> AllowedPaths | None:
    paths = run.config.triggers.paths
    if not paths:
        return None
    worktree, store = workspace.worktree, workspace.store
    excluded = {"core.excludesFile": str(store.harvest / "info" / "exclude")}
    return AllowedPaths(
        paths=paths,
        written=workspace.writable()[0],
        # Written when the checkout was made, and out of the worker's reach.
        since=(store.harvest / "index").stat().st_mtime_ns if workspace.mode == "bind" else None,
        git=Git(worktree.git_dir, work_tree=worktree.path, config=excluded),
    )


def _with_last_words(ending: Ending, log: WorkerLog) -> Ending:
    failed = ending.exit_status is not None and ending.exit_status.exit_code != 0
    if not failed:
        return ending
    named = (limit for limit in limits_named(log.stderr) if limit not in ending.limits_hit)
    return replace(ending, limits_hit=(*ending.limits_hit, *named))
