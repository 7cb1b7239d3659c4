"""One worker from start to finish: the story of the product, read this first."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from orchestrator import secret_files
from orchestrator.agents.base import Agent, AgentOutcome, AgentOutput, AgentSettings
from orchestrator.agents.symptoms import limits_named
from orchestrator.config import BASE_IMAGE, ParallelConfig
from orchestrator.engine import base as engine_base
from orchestrator.engine.base import (
    BindMount,
    Container,
    ContainerEngine,
    ContainerSpec,
    Egress,
    ExitStatus,
    TmpfsMount,
)
from orchestrator.errors import OrchestratorError
from orchestrator.events import Emit, Notice, WorkerHarvesting, WorkerPreparing
from orchestrator.execution import Cancel, Terms, execute
from orchestrator.harvest import Harvested, HarvestRefusedError, Origin, import_harvest
from orchestrator.judge import Ending, Verdict, judge
from orchestrator.leaks import leak_notes, leaks
from orchestrator.logs import WorkerLog
from orchestrator.plan import WorkerSpec
from orchestrator.record import RunDirectory
from orchestrator.redact import Redactor
from orchestrator.repository import Repository
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.sanitize import one_line
from orchestrator.secret_files import Secrets
from orchestrator.store import OBJECTS, STORE, WORKSPACE, StoreOptions, make_store
from orchestrator.workspace import HARVEST, HOME, OUT, Mode, Workspace, worker_user
from orchestrator.worktree import Changes, add_worktree, changes

HARVEST_TIMEOUT = 300.0
"""Seconds for committing and packing what a worker wrote."""
_HARVEST_MEMORY = 1024**3
_MESSAGE = "architect: uncommitted work of worker {worker}\n\nTask: {task}\n"
_NOTHING = Changes(files=(), insertions=0, deletions=0)


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What all workers of a run share."""

    config: ParallelConfig
    repository: Repository
    directory: RunDirectory
    engine: ContainerEngine
    agent: Agent
    image: str
    base: str
    shallow: frozenset[str]
    mode: Mode
    network: str
    egress: Egress | None
    cpus: float
    inherited_env: Mapping[str, str]
    secrets: Secrets
    redactor: Redactor
    emit: Emit
    cancel: Cancel


def run_worker(run: RunContext, spec: WorkerSpec) -> WorkerResult:
    """Do one worker's job; whatever goes wrong in it is its result."""
    run.emit(WorkerPreparing(worker_id=spec.worker_id))
    try:
        workspace = prepare(run, spec)
    except OrchestratorError as error:
        return failure(run, spec, Reason.SETUP_FAILED, error.message)
    log = _open_log(run, spec)
    with log:
        ending = _run_container(run, spec, workspace, log)
    ending = _with_last_words(ending, log)
    outcome = _read_outcome(run, log, ending)
    verdict = judge(ending, outcome, budget=run.config.budget_per_worker)
    harvested, verdict = _bring_home(run, spec, workspace, verdict)
    return _result(run, spec, ending, outcome, harvested, verdict)


def _run_container(
    run: RunContext, spec: WorkerSpec, workspace: Workspace, log: WorkerLog
) -> Ending:
    try:
        with run.secrets.laid_out(run.directory.run_id, spec.worker_id, workspace.user) as secrets:
            return execute(
                run.engine,
                _worker_container(run, spec, workspace, secrets),
                _terms(run, spec, workspace),
                log=log,
                cancel=run.cancel,
                emit=run.emit,
            )
    except OrchestratorError as error:
        return Ending(started_at=None, duration=0.0, exit_status=None, error=error)


def prepare(run: RunContext, spec: WorkerSpec) -> Workspace:
    """Make the worktree and everything the container is given."""
    root = run.directory.worker(spec.worker_id)
    root.mkdir()
    with run.repository.lock():
        worktree = add_worktree(run.repository, spec)
    user = worker_user(spec.worker_id)
    options = StoreOptions(
        base=run.base, shallow=run.shallow, mode=run.mode, owner=user, excluded=run.agent.droppings
    )
    store = make_store(run.repository, worktree, root, options)
    return Workspace(
        worktree=worktree, store=store, objects=run.directory.objects, mode=run.mode, user=user
    )


def _open_log(run: RunContext, spec: WorkerSpec) -> WorkerLog:
    return WorkerLog(
        run.directory.worker(spec.worker_id),
        spec.worker_id,
        emit=run.emit,
        read_progress=run.agent.progress,
        limit=run.config.limits.log_limit,
        redactor=run.redactor,
    )


def _terms(run: RunContext, spec: WorkerSpec, workspace: Workspace) -> Terms:
    return Terms(
        worker_id=spec.worker_id,
        timeout=run.config.timeout,
        limits=run.config.limits,
        writable=workspace.writable(),
        budget=run.config.budget_per_worker,
        ports=run.config.isolation.ports,
    )


def _worker_container(
    run: RunContext, spec: WorkerSpec, workspace: Workspace, secrets: Path | None
) -> ContainerSpec:
    config, limits = run.config, run.config.limits
    given = {} if secrets is None else {secret_files.VARIABLE: secret_files.TARGET}
    command = run.agent.command(
        spec,
        AgentSettings(
            profile=config.agent,
            max_steps=config.max_steps,
            budget=config.budget_per_worker,
            timeout=config.timeout,
            grace=limits.grace,
            api_base=config.api_base,
        ),
    )
    return ContainerSpec(
        name=f"orchestrator-{run.directory.run_id}-{spec.worker_id}",
        image=run.image,
        command=command.argv,
        user=workspace.user_text,
        workdir=WORKSPACE,
        labels=labels(run, spec, role="worker"),
        env={**_environment(), **given, **run.inherited_env, **command.env, **config.isolation.env},
        mounts=(
            *workspace.mounts(),
            *_secret_mounts(secrets),
            TmpfsMount(target="/tmp", size=limits.tmp),  # noqa: S108  # the container's own
            TmpfsMount(target=HOME, size=limits.tmp, mode="700"),
        ),
        network=run.network,
        egress=run.egress,
        cpus=run.cpus,
        memory=limits.memory,
        pids=limits.pids,
        open_files=limits.open_files,
        runtime=config.isolation.runtime,
    )


def _secret_mounts(secrets: Path | None) -> tuple[BindMount, ...]:
    if secrets is None:
        return ()
    return (BindMount(source=secrets, target=secret_files.TARGET, read_only=True),)


def _environment() -> dict[str, str]:
    return {
        "HOME": HOME,
        # The user has no entry in the image's passwd; programs that ask get these.
        "USER": "worker",
        "LOGNAME": "worker",
        # Its own work tree belongs to the worker; anything else it meets is its own affair.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }


def labels(run: RunContext, spec: WorkerSpec | None, *, role: str) -> dict[str, str]:
    """Say whose an object of the engine is: enough for another process to take over."""
    found = {
        engine_base.MANAGED: "true",
        engine_base.RUN: run.directory.run_id,
        engine_base.REPOSITORY: str(run.repository.common_dir),
        engine_base.ROLE: role,
    }
    if spec is not None:
        found[engine_base.WORKER] = str(spec.worker_id)
    return found


def _with_last_words(ending: Ending, log: WorkerLog) -> Ending:
    failed = ending.exit_status is not None and ending.exit_status.exit_code != 0
    if not failed:
        return ending
    named = (limit for limit in limits_named(log.stderr) if limit not in ending.limits_hit)
    return replace(ending, limits_hit=(*ending.limits_hit, *named))


def _read_outcome(run: RunContext, log: WorkerLog, ending: Ending) -> AgentOutcome | None:
    if ending.exit_status is None:
        return None
    return run.agent.outcome(AgentOutput(stdout=log.stdout, stderr=log.stderr), ending.exit_status)


def _bring_home(
    run: RunContext, spec: WorkerSpec, workspace: Workspace, verdict: Verdict
) -> tuple[Harvested, Verdict]:
    """Commit what the worker wrote on its branch; also when it failed."""
    run.emit(WorkerHarvesting(worker_id=spec.worker_id))
    try:
        harvested = harvest(run, spec, workspace)
    except OrchestratorError as error:
        kept = f"{error.message}; what it wrote is kept in {workspace.store.root}"
        if verdict.status is Status.SUCCESS:
            verdict = Verdict(Status.FAILED, Reason.HARVEST_REFUSED, kept)
        else:
            verdict = Verdict(verdict.status, verdict.reason, f"{verdict.message}; {kept}")
        return Harvested(run.base, ()), verdict
    finally:
        workspace.take_back()
    try:
        workspace.worktree.update(run.repository, base=run.base, tip=harvested.tip)
    except OrchestratorError as error:
        note = f"the worktree was changed meanwhile and is not updated ({error.message})"
        harvested = Harvested(harvested.tip, (*harvested.notes, note))
    workspace.discard_scratch()
    return _with_leaks(run, spec, harvested), verdict


def _with_leaks(run: RunContext, spec: WorkerSpec, harvested: Harvested) -> Harvested:
    try:
        found = leaks(run.repository, run.redactor, base=run.base, tip=harvested.tip)
    except OrchestratorError as error:
        # The work is in: a warning that cannot be given must not take it away again.
        notes: tuple[str, ...] = (f"it was not searched for secrets ({error.message})",)
    else:
        notes = leak_notes(found, spec.branch)
    for note in notes:
        run.emit(Notice(message=note))
    return Harvested(harvested.tip, (*harvested.notes, *notes))


def harvest(run: RunContext, spec: WorkerSpec, workspace: Workspace) -> Harvested:
    """Pack in a container without network, check on the host, move the branch.

    Raises:
        OrchestratorError: Nothing was let in; the worker's files are still where it wrote them.
    """
    if workspace.is_untouched():
        return Harvested(run.base, ())
    _pack(run, spec, workspace)
    return import_harvest(
        run.repository,
        out=workspace.store.out,
        quarantine=workspace.store.root / "quarantine",
        branch=spec.branch,
        origin=Origin(base=run.base, objects=run.directory.objects, shallow=run.shallow),
    )


def _pack(run: RunContext, spec: WorkerSpec, workspace: Workspace) -> None:
    script = files("orchestrator").joinpath("harvest_helper.py").read_text()
    message = _MESSAGE.format(
        worker=spec.worker_id, task=one_line(run.redactor.text(spec.task), limit=500)
    )
    container = run.engine.start(
        ContainerSpec(
            name=f"orchestrator-{run.directory.run_id}-{spec.worker_id}-harvest",
            image=BASE_IMAGE,
            command=(
                "python3", "-I", "-c", script,
                WORKSPACE, STORE, HARVEST, OBJECTS, OUT, run.base, spec.branch, message,
            ),
            user=workspace.user_text,
            workdir="/",
            labels=labels(run, spec, role="harvest"),
            mounts=(*workspace.harvest_mounts(), TmpfsMount(target="/tmp", size=64 * 1024**2)),  # noqa: S108
            cpus=run.cpus,
            memory=max(run.config.limits.memory, _HARVEST_MEMORY),
            open_files=run.config.limits.open_files,
        )
    )  # fmt: skip
    try:
        said, status = _last_words(container)
    finally:
        container.remove()
    if status.exit_code != 0:
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise HarvestRefusedError(f"the harvest failed: {one_line(run.redactor.text(last))}")


def _last_words(container: Container) -> tuple[bytes, ExitStatus]:
    """Wait for the harvest's end, and give the end of what it said."""
    deadline = time.monotonic() + HARVEST_TIMEOUT
    late = threading.Timer(HARVEST_TIMEOUT, container.kill, args=("SIGKILL",))
    late.start()
    try:
        said = b""
        for chunk in container.logs():
            said = (said + chunk.data)[-4000:]
    finally:
        late.cancel()
    status = container.wait(None)
    if time.monotonic() >= deadline:
        raise HarvestRefusedError(f"the harvest took longer than {HARVEST_TIMEOUT:.0f} s")
    return said, status


def _result(
    run: RunContext,
    spec: WorkerSpec,
    ending: Ending,
    outcome: AgentOutcome | None,
    harvested: Harvested,
    verdict: Verdict,
) -> WorkerResult:
    changed = _NOTHING
    if harvested.tip != run.base:
        changed = changes(run.repository, base=run.base, tip=harvested.tip)
    cost = None if outcome is None else outcome.cost
    messages = [verdict.message, *harvested.notes]
    return WorkerResult(
        worker_id=spec.worker_id,
        branch=spec.branch,
        model=spec.model_name,
        status=verdict.status,
        steps=0 if outcome is None else outcome.steps,
        cost=cost or 0.0,
        duration=round(ending.duration, 3),
        files_modified=list(changed.files),
        worktree_path=str(run.repository.top / spec.directory),
        task=spec.task,
        reason=verdict.reason,
        message="; ".join(message for message in messages if message) or None,
        exit_code=None if ending.exit_status is None else ending.exit_status.exit_code,
        commit=harvested.tip,
        insertions=changed.insertions,
        deletions=changed.deletions,
        tokens=None if outcome is None else outcome.tokens,
        cost_known=cost is not None,
        ports=dict(ending.ports),
        limits_hit=list(ending.limits_hit),
        peak_memory=ending.peak_memory,
        started_at=ending.started_at,
        log=str(run.directory.worker(spec.worker_id)),
    )


def failure(run: RunContext, spec: WorkerSpec, reason: Reason, message: str) -> WorkerResult:
    """Give the result of a worker whose container never ran."""
    return WorkerResult(
        worker_id=spec.worker_id,
        branch=spec.branch,
        model=spec.model_name,
        status=Status.FAILED,
        worktree_path=str(Path(run.repository.top) / spec.directory),
        task=spec.task,
        reason=reason,
        message=message,
        commit=run.base,
    )
