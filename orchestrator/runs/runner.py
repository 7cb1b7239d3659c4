"""Run workers: check everything first, then start as many workers at a time as are allowed."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.agents.base import Agent
from orchestrator.agents.settings_check import missing_keys
from orchestrator.base.errors import OrchestratorError, RepositoryError, UnsupportedError
from orchestrator.base.events import MOMENTARY, Emit, Event, ignore
from orchestrator.base.results import RunResult, WorkerResult
from orchestrator.base.text.ages import parse_age
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.threads import meanwhile
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.sizing import demand
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.planning import (
    NO_PROGRAMS,
    Programs,
    notice_of_repetition,
    plan_tasks,
    run_config,
)
from orchestrator.engine import connected
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.repository.checkouts.submodules import dead_ends
from orchestrator.repository.repository import Repository
from orchestrator.repository.settings import find_required_filters, is_partial
from orchestrator.runs.cleanup.orphans import leftover_notices
from orchestrator.runs.live.recorder import ClaimedRun, Recorder, announce
from orchestrator.runs.live.shared_resources import network_closed, prepare_shared, release_shared
from orchestrator.runs.planning.capacity import check_disk, check_worktrees
from orchestrator.runs.planning.machine_check import crowding, roominess
from orchestrator.runs.planning.naming import name_workers
from orchestrator.runs.planning.preflight import RunRequest, check_request, check_run
from orchestrator.runs.planning.reservation import reserve, undo
from orchestrator.runs.scheduling.scheduler import run_workers
from orchestrator.sandbox.supervision.cancel import Cancel
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.attempts import attempt
from orchestrator.worker.checked_run import CheckedRun
from orchestrator.worker.context import RunContext

if TYPE_CHECKING:
    from orchestrator.runs.planning.dry_run import RunPlan

_MOST_PENDING = 10_000
"""Number of events that wait for a slow reader, after which output of workers is left out."""
_SENT = (
    "the engine cannot use the files of this machine: copies are sent to it (`transfer: streams`)"
)


class ParallelRunner:
    """Runs many workers, each in its own worktree and container."""

    def __init__(
        self,
        config: ParallelConfig,
        root: Path | str | None = None,
        *,
        emit: Emit | None = None,
        engine: ContainerEngine | None = None,
        agent: Agent | None = None,
        workflow: Workflow | None = None,
        programs: Programs = NO_PROGRAMS,
        warms: bool = False,
    ) -> None:
        """Store the arguments. Nothing is created before `execute`.

        Args:
            config: The settings of the run.
            root: Any directory in the repository. Default: the current directory.
            emit: Receives events, from several threads.
            engine: The container engine. Default: Docker.
            agent: Adapter of the agent program. Default: the adapter that `config.agent_cli` names.
            workflow: Tasks and their order, in place of the tasks of `config`.
            programs: Settings of tasks that use another agent program, by the program's name.
            warms: Whether the run has a single worker, whose caches are published for later runs.
        """
        self._config = config if workflow is None else run_config(config, workflow)
        self._request = RunRequest(
            config=self._config,
            root=Path(root) if root is not None else Path.cwd(),
            agent=agent,
            workflow=workflow,
            programs=programs,
        )
        self._emit = emit or ignore
        self._engine = engine
        self._warms = warms
        self._cancel = Cancel()
        self._run_id: str | None = None

    @property
    def run_id(self) -> str | None:
        """The run's id; None before the run is recorded."""
        return self._run_id

    def plan(self) -> "RunPlan":
        """Return the plan of the run with the current settings. Nothing is created.

        Raises:
            OrchestratorError: The run could not start with any engine or machine.
        """
        # Imported here because runs that are executed should not wait for it.
        from orchestrator.runs.planning.dry_run import RunPlan

        config = self._config
        isolation = config.isolation
        checked = check_request(self._request)
        settings = checked.settings
        repository = checked.repository
        check_worktrees(repository, config)
        base = repository.resolve(config.base)
        workers = name_workers(
            repository, config, base,
            lambda first: plan_tasks(
                config, checked.workflow, programs=checked.programs, first=first
            ),
        )  # fmt: skip
        missing = missing_keys(config, settings.agent, settings.inherited_env)
        plan = RunPlan(
            base=base,
            top=repository.top,
            workers=workers,
            worktrees=config.worktrees,
            image=settings.image,
            timeout=config.timeout,
            preset=config.preset,
            limits=config.limits,
            network=isolation.network,
            allow=isolation.allow,
            runtime=isolation.runtime,
            history=isolation.history,
            ports=isolation.ports,
            services={name: service.image for name, service in config.project.services.items()},
            caches=config.project.caches,
            setup=config.project.setup,
            teardown=config.project.teardown,
            checks=tuple(check.title for check in config.project.checks),
            keys=isolation.keys,
            env=tuple(sorted(settings.worker_env)),
            secrets=tuple(checked.secrets.files),
            notices=(
                *self._notices(repository),
                *checked.copies.notices,
                *([missing.message] if missing else ()),
            ),
        )
        return checked.redactor.model(plan)

    def _notices(self, repository: Repository) -> Iterator[str]:
        if self._config.include_uncommitted:
            for path in repository.repositories_inside():
                yield f"workers do not see the contents of `{path}`, which is a separate repository"
        elif repository.is_dirty():
            yield (
                "workers do not see the uncommitted changes of the checkout; include "
                "them with `--include-uncommitted`"
            )
        if is_partial(repository.git_config) and self._config.isolation.history == "full":
            yield "the repository is a partial clone: workers get the base commit without history"
        if filters := find_required_filters(repository.git_config):
            shown = ", ".join(f"`{one_line(name, limit=60)}`" for name in sorted(filters))
            yield (
                f"the required filters {shown} do not run for workers: files under them come as "
                "they are committed, and go into commits as workers write them"
            )
        yield from dead_ends(repository, repository.resolve(self._config.base))
        if self._config.closed_stages:
            stages = ", ".join(f"`{stage}`" for stage in self._config.closed_stages)
            yield (
                f"commands of {stages} come from a configuration file found in the repository and "
                "get no variables, no secrets and, unless an option opens one, no network; name a "
                "file that you trust with `--config FILE`"
            )
        chosen = "workers" in self._config.model_fields_set
        repeated = notice_of_repetition(self._config, workers_given=chosen)
        if repeated is not None:
            yield repeated

    def run(self) -> list[WorkerResult]:
        """Run all workers and return their results, ordered by worker number.

        Raises:
            OrchestratorError: The run could not start; nothing was created.
        """
        return self.execute().results

    def cancel(self, *, kill: bool = False) -> None:
        """Stop every worker, commit the work, and record the reason `cancelled`.

        Args:
            kill: Whether to kill the workers without a grace period.
        """
        self._cancel.press(kill=kill)

    def execute(self) -> RunResult:
        """Run all workers and return the run's result.

        Raises:
            OrchestratorError: The run could not start; nothing was created.
        """
        with connected(self._engine, name=self._config.isolation.engine) as engine:
            checked, removed = self._check_and_make_room(engine)
            # protection: caches-are-filled-only-from-files-of-this-machine
            if self._warms and checked.features.transfer == "streams":
                raise UnsupportedError(
                    "caches are filled on engines that use the files of this machine",
                    key="transfer.unsupported",
                    hint="use Docker or Podman of this machine",
                )
            claimed = reserve(checked, warms=self._warms)
            self._run_id = claimed.directory.run_id
            redactor, notify = checked.request.redactor, self._config.triggers.notify
            recorder = Recorder(claimed, self._emit, redactor, notify=notify)
            with release_shared(engine, claimed, recorder):
                run, notices = self._prepare(checked, claimed, recorder)
                with network_closed(run):
                    announce(recorder, claimed.record, (*removed, *notices, *run.notices))
                    return run_workers(run, claimed.record.workers, attempt)

    async def events(self) -> AsyncIterator[Event]:
        """Run all workers, and yield every event of the run; the last one has the result.

        If the loop over the events is left early, the run is cancelled.

        Raises:
            OrchestratorError: The run could not start; nothing was created.
        """
        # Imported here because runs that are executed should not wait for it.
        import asyncio

        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Event | None]()
        own = self._emit

        def emit(event: Event) -> None:
            own(event)
            # A slow reader loses output, which is not recorded either, but no transition.
            if queue.qsize() < _MOST_PENDING or not isinstance(event, MOMENTARY):
                loop.call_soon_threadsafe(queue.put_nowait, event)

        self._emit = emit
        run = asyncio.ensure_future(asyncio.to_thread(self.execute))
        run.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            await run
        finally:
            self._emit = own
            if not run.done():
                self.cancel()
                await asyncio.wait({run})

    def reserve(self) -> RunDirectory:
        """Reserve the workers' numbers and record the plan, for execution by another process.

        Returns:
            The run's directory, which this process has locked.

        Raises:
            OrchestratorError: The run could not start; nothing was created.
        """
        with connected(self._engine, name=self._config.isolation.engine) as engine:
            checked, removed = self._check_and_make_room(engine)
            notices = self._all_notices(checked)
            claimed = reserve(checked)
            recorder = Recorder(claimed, self._emit, checked.request.redactor)
            announce(recorder, claimed.record, (*removed, *notices))
            return claimed.directory

    def _check_and_make_room(self, engine: ContainerEngine) -> tuple[CheckedRun, list[str]]:
        """Check the request, and remove old workers; return notices of the removal."""
        checked = check_run(self._request, engine)
        request, features = checked.request, checked.features
        removed = self._remove_old(engine)
        overlay, copied = features.overlay, request.copies.size
        check_disk(request.repository, self._config, overlay=overlay, copied=copied)
        return checked, removed

    def _all_notices(self, checked: CheckedRun) -> tuple[str, ...]:
        request, features = checked.request, checked.features
        each = [demand(task.config, cpus=features.cpus) for task in request.tasks.values()]
        room = roominess(self._config, features, each)
        crowded = crowding(self._config, features, each) or room
        is_auto = self._config.isolation.transfer == "auto"
        missing = ", ".join(f"`{limit}`" for limit in features.unenforced)
        return (
            *([f"the engine does not enforce these limits: {missing}"] if missing else ()),
            *([_SENT] if features.transfer == "streams" and is_auto else ()),
            *leftover_notices(request.repository, checked.engine),
            *self._notices(request.repository),
            *request.copies.notices,
            *([crowded] if crowded else ()),
        )

    def _remove_old(self, engine: ContainerEngine) -> list[str]:
        """Remove old merged workers if the setting `retention` asks for it; return notices."""
        if self._config.retention is None:
            return []
        # Imported here because most runs remove nothing.
        from orchestrator.runs.cleanup.inventory import Wanted
        from orchestrator.runs.cleanup.remove import cleanup

        wanted = Wanted(merged=True, older_than=parse_age(self._config.retention))
        try:
            gone = cleanup(self._request.root, engine=engine, wanted=wanted).workers
        except OrchestratorError as error:
            return [f"old workers were not removed ({error.message})"]
        numbers = ", ".join(str(worker.worker_id) for worker in gone if worker.problem is None)
        told = f"merged and older than {self._config.retention}: removed worker {numbers}"
        return [told] if numbers else []

    def _prepare(
        self, checked: CheckedRun, claimed: ClaimedRun, recorder: Recorder
    ) -> tuple[RunContext, tuple[str, ...]]:
        """Prepare what all workers need, and look for what the user should know meanwhile."""
        try:
            with meanwhile(partial(self._all_notices, checked)) as notices:
                run = prepare_shared(checked, claimed, recorder, self._cancel, resumed=False)
            return run, notices.result()
        except (OrchestratorError, OSError) as error:
            undo(checked.request.repository, claimed)
            if isinstance(error, OSError):
                raise RepositoryError(
                    f"cannot prepare the run: {error}", key="run.unprepared"
                ) from error
            raise
