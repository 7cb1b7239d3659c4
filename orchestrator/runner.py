"""One run: check everything, then start the workers, a slot each, until none is left."""

import os
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from orchestrator.agents import load_agent
from orchestrator.agents.base import Agent
from orchestrator.config import BASE_IMAGE, Limits, ParallelConfig
from orchestrator.egress import allowed_destinations
from orchestrator.engine import load_engine
from orchestrator.engine.base import MANAGED, RUN, ContainerEngine, Egress, EngineFeatures
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.events import Emit, Event, Notice, RunDone, RunStarted, WorkerDone
from orchestrator.execution import Cancel
from orchestrator.plan import WorkerSpec, job_count, plan_workers, repeated_task_notice
from orchestrator.presets import Preset
from orchestrator.record import RunDirectory, RunRecord, new_run_id
from orchestrator.redact import Redactor, secret_variables
from orchestrator.repository import Repository
from orchestrator.results import Reason, RunResult, WorkerResult, overall_status
from orchestrator.secret_files import Secrets, read_secrets
from orchestrator.store import base_objects
from orchestrator.worker import RunContext, failure, labels, run_worker
from orchestrator.workspace import choose_mode, remove_tree

_DEFAULT_CPUS = 2.0


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
    history: str
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
            RepositoryError: There is no repository, or no commit to start from.
            ConfigError: The agent program is unknown, or a secret cannot be had.
        """
        repository = Repository(self._root)
        base = repository.resolve(self._config.base)
        agent = self._agent or load_agent(self._config.agent_cli)
        secrets = read_secrets(self._config.isolation.secrets, os.environ)
        first = repository.free_block(job_count(self._config))
        plan = RunPlan(
            base=base,
            top=repository.top,
            workers=plan_workers(self._config, first=first),
            image=self._config.image or agent.image,
            timeout=self._config.timeout,
            preset=self._config.preset,
            limits=self._config.limits,
            network=self._config.isolation.network,
            history=self._config.isolation.history,
            secrets=tuple(secrets.values),
            notices=tuple(self._notices(repository)),
        )
        return _redactor(self._config, agent, secrets).model(plan)

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
        repository = Repository(self._root)
        base = repository.resolve(self._config.base)
        agent = self._agent or load_agent(self._config.agent_cli)
        image = self._config.image or agent.image
        secrets = read_secrets(self._config.isolation.secrets, os.environ)
        with self._connected() as engine:
            features = engine.check(
                images=(image, BASE_IMAGE), runtime=self._config.isolation.runtime
            )
            ground = _Ground(
                config=self._config,
                repository=repository,
                engine=engine,
                features=features,
                agent=agent,
                image=image,
                cpus=_cpus(self._config, features),
                egress=_egress(self._config, agent),
                secrets=secrets,
                redactor=_redactor(self._config, agent, secrets),
                notices=tuple(self._notices(repository)),
            )
            with _opened(ground, base, self._emit, self._cancel) as (run, workers):
                return _carry_out(run, workers, features.version)

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


@dataclass(frozen=True, kw_only=True)
class _Ground:
    """What was checked and found good before anything was created."""

    config: ParallelConfig
    repository: Repository
    engine: ContainerEngine
    features: EngineFeatures
    agent: Agent
    image: str
    cpus: float
    egress: Egress | None
    secrets: Secrets
    redactor: Redactor
    notices: tuple[str, ...]


def _cpus(config: ParallelConfig, features: EngineFeatures) -> float:
    wanted = config.limits.cpus
    if wanted is None:
        return min(_DEFAULT_CPUS, features.cpus)
    if wanted > features.cpus:
        raise ConfigError(
            f"cpus: {wanted:g} is more than the machine has", hint=f"at most {features.cpus}"
        )
    return wanted


def _egress(config: ParallelConfig, agent: Agent) -> Egress | None:
    isolation = config.isolation
    if isolation.network == "none":
        return None
    environment = {**_inherited(agent), **isolation.env}
    urls = [value for name, value in environment.items() if name.endswith(("_BASE", "_URL"))]
    if config.api_base is not None:
        urls.append(config.api_base)
    return Egress(image=BASE_IMAGE, allowed=allowed_destinations(isolation.allow, urls))


def _redactor(config: ParallelConfig, agent: Agent, secrets: Secrets) -> Redactor:
    environment = {**_inherited(agent), **config.isolation.env}
    if config.api_base is not None:
        environment["api_base"] = config.api_base
    return Redactor({**secret_variables(environment), **secrets.values})


@contextmanager
def _opened(
    ground: _Ground, head: str, emit: Emit, cancel: Cancel
) -> Iterator[tuple[RunContext, tuple[WorkerSpec, ...]]]:
    """Claim numbers and make what the workers share; all of that is gone again at the end."""
    repository = ground.repository
    base = _base(ground, head)
    directory, workers = _reserve(ground, base)
    recorder = _Recorder(directory, emit, ground.redactor)
    try:
        try:
            run = _share(ground, base, directory, recorder, cancel)
        except OrchestratorError:
            for worker in workers:
                repository.drop_branch(worker.branch, at=base)
            remove_tree(directory.path)
            raise
        slots = min(ground.config.workers, len(workers))
        recorder(RunStarted(run_id=directory.run_id, base=base, workers=workers, slots=slots))
        for notice in ground.notices:
            recorder(Notice(message=notice))
        yield run, workers
    finally:
        for leftover in ground.engine.leftovers({MANAGED: "true", RUN: directory.run_id}):
            ground.engine.remove(leftover)
        remove_tree(directory.objects)
        directory.release()


def _base(ground: _Ground, head: str) -> str:
    if not ground.config.include_uncommitted:
        return head
    state_dir = ground.repository.state_dir
    state_dir.mkdir(parents=True, exist_ok=True)
    return ground.repository.snapshot(
        parent=head,
        message="architect: uncommitted changes of the checkout",
        scratch=state_dir / f"index-{os.getpid()}",
    )


def _reserve(ground: _Ground, base: str) -> tuple[RunDirectory, tuple[WorkerSpec, ...]]:
    repository, config = ground.repository, ground.config
    directory = RunDirectory(repository.state_dir / "runs" / new_run_id())
    with repository.lock():
        repository.exclude_worktrees()
        first = repository.free_block(job_count(config))
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
        directory.create(ground.redactor.model(record))
        try:
            repository.claim([worker.branch for worker in workers], base)
        except OrchestratorError:
            directory.release()
            remove_tree(directory.path)
            raise
    return directory, workers


def _share(
    ground: _Ground, base: str, directory: RunDirectory, emit: Emit, cancel: Cancel
) -> RunContext:
    isolation = ground.config.isolation
    run = RunContext(
        config=ground.config,
        repository=ground.repository,
        directory=directory,
        engine=ground.engine,
        agent=ground.agent,
        image=ground.image,
        base=base,
        shallow=base_objects(ground.repository, base, directory.objects, history=isolation.history),
        mode=choose_mode(ground.engine, ground.features, ground.repository),
        network="none",
        egress=ground.egress,
        cpus=ground.cpus,
        inherited_env=_inherited(ground.agent),
        secrets=ground.secrets,
        redactor=ground.redactor,
        emit=emit,
        cancel=cancel,
    )
    if isolation.network == "none":
        return run
    name = f"orchestrator-{directory.run_id}"
    network = ground.engine.create_network(name, labels(run, None, role="network"))
    return replace(run, network=network)


def _inherited(agent: Agent) -> dict[str, str]:
    return {name: os.environ[name] for name in agent.inherited_env if name in os.environ}


def _carry_out(run: RunContext, workers: tuple[WorkerSpec, ...], engine: str) -> RunResult:
    started = time.monotonic()
    with ThreadPoolExecutor(run.config.workers, thread_name_prefix="worker") as pool:
        results = list(pool.map(lambda spec: _finish(run, spec), workers))
    result = RunResult(
        run_id=run.directory.run_id,
        status=overall_status(results),
        base=run.base,
        engine=engine,
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
            with (run.directory.path / "internal-error.log").open("a") as file:
                file.write(run.redactor.text(traceback.format_exc()))
            result = failure(run, spec, Reason.INTERNAL_ERROR, f"internal error: {error!r}")
    result = run.redactor.model(result)
    run.directory.write_result(result)
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
