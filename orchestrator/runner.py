"""One run: check everything, then start the workers, a slot each, until none is left."""

import os
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from orchestrator.agents.base import Agent
from orchestrator.capacity import check_disk, check_worktrees
from orchestrator.config import Limits, ParallelConfig
from orchestrator.context import Ground, RunContext, labels
from orchestrator.engine import load_engine
from orchestrator.engine.base import MANAGED, RUN, ContainerEngine
from orchestrator.errors import OrchestratorError, RepositoryError
from orchestrator.events import Emit, Event, Notice, RunDone, RunStarted, WorkerDone
from orchestrator.execution import Cancel
from orchestrator.leftovers import abandoned
from orchestrator.plan import WorkerSpec, job_count, plan_workers, repeated_task_notice
from orchestrator.preflight import check_ground, check_wishes, crowding, missing_keys
from orchestrator.presets import Preset
from orchestrator.record import RunDirectory, RunRecord, live_numbers, new_run_id
from orchestrator.redact import Redactor
from orchestrator.repository import Repository
from orchestrator.results import Reason, RunResult, WorkerResult, overall_status
from orchestrator.store import base_objects
from orchestrator.worker import failure, run_worker
from orchestrator.workspace import choose_mode, remove_tree


class RunPlan(BaseModel):
    """What a run would do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str
    top: Path
    workers: tuple[WorkerSpec, ...]
    image: str
    timeout: float | None
    preset: Preset | None
    limits: Limits
    network: str
    allow: tuple[str, ...]
    runtime: str | None
    history: str
    ports: tuple[int, ...]
    env: tuple[str, ...]
    """Names of the variables in the containers, those passed on included."""
    secrets: tuple[str, ...]
    notices: tuple[str, ...]


class ParallelRunner:
    """Runs many workers at once, each in a worktree and a container of its own."""

    def __init__(
        self,
        config: ParallelConfig,
        root: Path | str | None = None,
        *,
        emit: Emit | None = None,
        engine: ContainerEngine | None = None,
        agent: Agent | None = None,
    ) -> None:
        """Take the wishes; nothing is touched yet.

        Args:
            config: What to run.
            root: Anywhere in the repository. Default: the current directory.
            emit: Is told what happens, from several threads.
            engine: Default: the Docker engine.
            agent: Default: the one that `config.agent_cli` names.
        """
        self._config = config
        self._root = Path(root) if root is not None else Path.cwd()
        self._emit = emit or _ignore
        self._engine = engine
        self._agent = agent
        self._cancel = Cancel()

    def plan(self) -> RunPlan:
        """Say what a run would do now. Creates nothing.

        Raises:
            OrchestratorError: A run could not start, whatever the engine and the machine are.
        """
        config = self._config
        isolation = config.isolation
        wishes = check_wishes(config, self._root, self._agent)
        repository = wishes.repository
        check_worktrees(repository, config)
        first = repository.free_block(job_count(config), taken=live_numbers(repository.state_dir))
        missing = missing_keys(config, wishes.agent)
        plan = RunPlan(
            base=repository.resolve(config.base),
            top=repository.top,
            workers=plan_workers(config, first=first),
            image=wishes.image,
            timeout=config.timeout,
            preset=config.preset,
            limits=config.limits,
            network=isolation.network,
            allow=isolation.allow,
            runtime=isolation.runtime,
            history=isolation.history,
            ports=isolation.ports,
            env=tuple(sorted({*wishes.inherited_env, *isolation.env})),
            secrets=tuple(wishes.secrets.values),
            notices=(*self._notices(repository), *([missing.message] if missing else ())),
        )
        return wishes.redactor.model(plan)

    def _notices(self, repository: Repository) -> Iterator[str]:
        if not self._config.include_uncommitted and repository.is_dirty():
            yield (
                "the checkout has uncommitted changes, which the workers do not see; "
                "`--include-uncommitted` carries them over"
            )
        chosen = "workers" in self._config.model_fields_set
        repeated = repeated_task_notice(self._config, workers_given=chosen)
        if repeated is not None:
            yield repeated

    def run(self) -> list[WorkerResult]:
        """Run all workers and give their results, in the order of their numbers.

        Raises:
            OrchestratorError: The run could not start; nothing was created.
        """
        return self.execute().results

    def cancel(self, *, kill: bool = False) -> None:
        """Stop every worker; its work is committed and its result says `cancelled`.

        Args:
            kill: Do not wait for the workers' grace.
        """
        self._cancel.press(kill=kill)

    def execute(self) -> RunResult:
        """Run all workers.

        Raises:
            OrchestratorError: The run could not start; nothing was created.
        """
        with self._connected() as engine:
            ground = check_ground(self._config, self._root, engine, self._agent)
            check_disk(ground.repository, self._config, overlay=ground.features.overlay)
            crowded = crowding(self._config, ground.features)
            notices = (
                *abandoned(ground.repository, engine),
                *self._notices(ground.repository),
                *([crowded] if crowded else ()),
            )
            with _opened(ground, notices, self._emit, self._cancel) as (run, workers):
                return _carry_out(run, workers)

    @contextmanager
    def _connected(self) -> Iterator[ContainerEngine]:
        if self._engine is not None:
            yield self._engine
            return
        engine = load_engine("docker")
        try:
            yield engine
        finally:
            engine.close()


@contextmanager
def _opened(
    ground: Ground, notices: tuple[str, ...], emit: Emit, cancel: Cancel
) -> Iterator[tuple[RunContext, tuple[WorkerSpec, ...]]]:
    """Claim numbers and make what the workers share; all of that is gone again at the end."""
    repository = ground.repository
    base = _base(ground)
    directory, workers = _reserve(ground, base)
    recorder = _Recorder(directory, emit, ground.redactor)
    try:
        try:
            run = _share(ground, base, directory, recorder, cancel)
        except (OrchestratorError, OSError) as error:
            for worker in workers:
                repository.drop_branch(worker.branch, at=base)
            remove_tree(directory.path)
            if isinstance(error, OSError):
                raise RepositoryError(f"the run could not be prepared: {error}") from error
            raise
        slots = min(ground.config.workers, len(workers))
        recorder(RunStarted(run_id=directory.run_id, base=base, workers=workers, slots=slots))
        for notice in notices:
            recorder(Notice(message=notice))
        yield run, workers
    finally:
        for problem in _sweep(ground.engine, directory.run_id):
            # The results stand; what is left is found by its labels.
            recorder(Notice(message=f"not all was removed ({problem})"))
        remove_tree(directory.objects)
        directory.release()


def _sweep(engine: ContainerEngine, run_id: str) -> Iterator[str]:
    """Remove what a run made in the engine; say what stays, and go on."""
    try:
        leftovers = engine.leftovers({MANAGED: "true", RUN: run_id})
    except OrchestratorError as error:
        yield error.message
        return
    for leftover in leftovers:
        try:
            engine.remove(leftover)
        except OrchestratorError as error:
            yield error.message


def _base(ground: Ground) -> str:
    head = ground.repository.resolve(ground.config.base)
    if not ground.config.include_uncommitted:
        return head
    state_dir = ground.repository.state_dir
    state_dir.mkdir(parents=True, exist_ok=True)
    return ground.repository.snapshot(
        parent=head,
        message="architect: uncommitted changes of the checkout",
        scratch=state_dir / f"index-{os.getpid()}",
    )


def _reserve(ground: Ground, base: str) -> tuple[RunDirectory, tuple[WorkerSpec, ...]]:
    repository, config = ground.repository, ground.config
    directory = RunDirectory(repository.state_dir / "runs" / new_run_id())
    with repository.lock():
        check_worktrees(repository, config)
        repository.exclude_worktrees()
        taken = live_numbers(repository.state_dir)
        first = repository.free_block(job_count(config), taken=taken)
        workers = plan_workers(config, first=first)
        record = RunRecord(
            run_id=directory.run_id,
            created_at=datetime.now(UTC),
            top=repository.top,
            base=base,
            engine=ground.features.version,
            config=config,
            workers=workers,
        )
        try:
            directory.create(ground.redactor.model(record))
            repository.claim([worker.branch for worker in workers], base)
        except (OrchestratorError, OSError) as error:
            directory.release()
            remove_tree(directory.path)
            if isinstance(error, OSError):
                raise RepositoryError(f"the run could not be recorded: {error}") from error
            raise
    return directory, workers


def _share(
    ground: Ground, base: str, directory: RunDirectory, emit: Emit, cancel: Cancel
) -> RunContext:
    isolation = ground.config.isolation
    run = RunContext(
        **vars(ground),
        directory=directory,
        base=base,
        shallow=base_objects(ground.repository, base, directory.objects, history=isolation.history),
        mode=choose_mode(ground.engine, ground.features, ground.repository),
        network="none",
        emit=emit,
        cancel=cancel,
    )
    if isolation.network == "none":
        return run
    name = f"orchestrator-{directory.run_id}"
    network = ground.engine.create_network(name, labels(run, None, role="network"))
    return replace(run, network=network)


def _carry_out(run: RunContext, workers: tuple[WorkerSpec, ...]) -> RunResult:
    started = time.monotonic()
    with ThreadPoolExecutor(run.config.workers, thread_name_prefix="worker") as pool:
        try:
            results = list(pool.map(lambda spec: _finish(run, spec), workers))
        except BaseException:
            # Ctrl-C in a program that uses us: the pool waits for a grace then, not for deadlines.
            run.cancel.press(kill=False)
            raise
    result = RunResult(
        run_id=run.directory.run_id,
        status=overall_status(results),
        base=run.base,
        engine=run.features.version,
        duration=round(time.monotonic() - started, 3),
        cost=sum(result.cost for result in results),
        results=results,
    )
    run.emit(RunDone(result=result))
    return result


def _finish(run: RunContext, spec: WorkerSpec) -> WorkerResult:
    """Give a worker's result, whatever happens, and make it durable."""
    if run.cancel.asked:
        result = failure(run, spec, Reason.CANCELLED, "cancelled before it started")
        with suppress(OrchestratorError):
            run.repository.drop_branch(spec.branch, at=run.base)
    else:
        try:
            result = run_worker(run, spec)
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


class _Recorder:
    """Tells an event, without its secrets, to the run's record and to whoever watches."""

    def __init__(self, directory: RunDirectory, emit: Emit, redactor: Redactor) -> None:
        self._directory = directory
        self._emit = emit
        self._redactor = redactor

    def __call__(self, event: Event) -> None:
        event = self._redactor.model(event)
        self._directory.log_event(event)
        self._emit(event)


def _ignore(event: Event) -> None:
    """Watch nothing."""
