"""Continue a run whose process has died, so that no task runs twice and no work is lost."""

import os
from contextlib import suppress

from orchestrator.agents.base import Agent
from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Emit, Notice, RunDone, ignore
from orchestrator.base.results import RunResult
from orchestrator.base.text.redact import Redactor
from orchestrator.config.derived import with_changes, with_isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine import connected
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.repository.git_directory import git_dir_named_by
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import RecordedWorker, base_ref, worker_refs
from orchestrator.runs.live.recorder import ClaimedRun, Recorder, announce
from orchestrator.runs.live.shared_resources import (
    network_closed,
    prepare_shared,
    release_shared,
    remove_helpers,
)
from orchestrator.runs.planning.preflight import RunRequest, check_run
from orchestrator.runs.planning.private_values import with_private_values
from orchestrator.runs.resuming.continuing import Message, check_continues, deliver
from orchestrator.runs.scheduling.scheduler import run_workers
from orchestrator.sandbox.supervision.cancel import Cancel
from orchestrator.state.record.history import RunHistory
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import (
    Inputs,
    RunRecord,
    read_inputs,
    read_record,
    require_record,
)
from orchestrator.worker.attempts import attempt
from orchestrator.worker.turns.turns import awaits_turn

_HAD_ENDED = (
    "run {} had ended already: no worker was resumed; repeat one with `orchestrator retry N`"
)


class ResumedRun:
    """A run that another process started and that this process continues."""

    message: Message | None = None
    """A message for a worker of a run that has ended: only this worker continues."""

    def __init__(
        self,
        directory: RunDirectory,
        *,
        emit: Emit | None = None,
        engine: ContainerEngine | None = None,
        agent: Agent | None = None,
        lease: int | None = None,
    ) -> None:
        """Store the arguments. Nothing is changed before `execute`.

        Args:
            directory: The run's directory.
            emit: Receives events, from several threads.
            engine: The container engine. Default: Docker.
            agent: Adapter of the agent program. Default: the adapter that the run's record names.
            lease: A descriptor of the run's locked lease, from the process that reserved the run.
        """
        self._directory = directory
        self._emit = emit or ignore
        self._engine = engine
        self._agent = agent
        self._lease = lease
        self._cancel = Cancel()

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._directory.run_id

    def cancel(self, *, kill: bool = False) -> None:
        """Stop every worker, commit the work, and record the reason `cancelled`.

        Args:
            kill: Whether to kill the workers without a grace period.
        """
        self._cancel.press(kill=kill)

    def execute(self) -> RunResult:
        """Continue until all workers have results.

        Raises:
            ConfigError: Another process carries out the run, or inputs of the run are missing.
            OrchestratorError: The run cannot continue now; nothing was changed.
        """
        directory = self._directory
        if not directory.take_over(self._lease):
            raise ConfigError(
                f"run {directory.run_id} is in progress in process {directory.process}",
                key="run.live",
                hint=f"watch the run with `orchestrator watch {directory.run_id}`",
            )
        try:
            message = self.message
            if message is None:
                record, inputs = _read(directory)
                config = inputs.config if inputs else record.config
            else:
                record, inputs = require_record(directory), None
                check_continues(directory, record, message)
                config = with_private_values(record.config, record, os.environ)
            config = with_changes(config, base=record.base, context=None)
            used = record.engine_used
            if used is not None and used.transfer is not None:
                # Its files are where the dead process put them.
                config = with_isolation(config, transfer=used.transfer)
            with connected(self._engine, used) as engine:
                if message is None and _is_done(directory, record):
                    return self._conclude(ClaimedRun(record, directory), engine)
                checked = check_run(self._request(config, record, inputs), engine, resumed=True)
                _check_worktrees(directory, record)
                if message is not None:
                    deliver(directory, record, message, checked.request)
                _claim_again(checked.request.repository, directory, record)
                redactor, notify = checked.request.redactor, config.triggers.notify
                claimed = ClaimedRun(record, directory)
                recorder = Recorder(claimed, self._emit, redactor, notify=notify)
                remove_helpers(engine, directory.run_id)
                run = prepare_shared(checked, claimed, recorder, self._cancel, resumed=True)
                with release_shared(engine, claimed, recorder), network_closed(run):
                    announce(recorder, record, run.notices)
                    return run_workers(run, record.workers, attempt, since=record.created_at)
        finally:
            directory.release()

    def _request(
        self, config: ParallelConfig, record: RunRecord, inputs: Inputs | None
    ) -> RunRequest:
        """Return the run's recorded request, with the private values that are kept in memory."""
        if inputs is None:
            return RunRequest(
                config=config,
                root=record.top,
                agent=self._agent,
                workflow=record.workflow,
                programs={
                    name: with_private_values(program, record, os.environ)
                    for name, program in record.programs.items()
                },
            )
        names = tuple(entry.partition("=")[0] for entry in config.isolation.secrets)
        return RunRequest(
            config=with_isolation(config, secrets=names),
            root=record.top,
            agent=self._agent,
            workflow=inputs.workflow,
            programs=inputs.programs,
            environ={**os.environ, **inputs.environ},
            agent_config=inputs.agent_config,
        )

    def _conclude(self, claimed: ClaimedRun, engine: ContainerEngine) -> RunResult:
        """Write the result of a run whose workers all have results, and release the run."""
        with RunHistory(claimed.directory, claimed.record) as history:
            result = history.result()
        recorder = Recorder(claimed, self._emit, Redactor())
        with release_shared(engine, claimed, recorder):
            if claimed.directory.run_result() is not None:
                self._emit(Notice(message=_HAD_ENDED.format(claimed.directory.run_id)))
            with suppress(OSError):
                claimed.directory.write_run_result(result)
            self._emit(RunDone(result=result))
        return result


def _check_worktrees(directory: RunDirectory, record: RunRecord) -> None:
    """Check that git finds the worktrees of workers that continue: not so in a moved repository."""
    for spec in record.workers:
        worker = RecordedWorker(directory, record, spec)
        is_made = git_dir_named_by(worker.path) is not None
        if is_made and directory.result(spec.worker_id) is None:
            worker.open_worktree()


def _read(directory: RunDirectory) -> tuple[RunRecord, Inputs | None]:
    record = read_record(directory)
    if record is None:
        raise ConfigError(
            f"run {directory.run_id} cannot be resumed: its record is missing or unreadable",
            key="run.unreadable",
            hint=f"remove the run with `orchestrator parallel-cleanup --run {directory.run_id}`",
        )
    inputs = read_inputs(directory.run_id, os.environ)
    if inputs is None and record.private and not _is_done(directory, record):
        raise ConfigError(
            f"run {directory.run_id} cannot be resumed: values that were only in memory are gone: "
            f"{', '.join(record.private)}",
            key="value.unrecorded",
            hint=f"`orchestrator parallel-cleanup --run {directory.run_id}` removes the run, "
            "but keeps its finished work",
        )
    if inputs is not None:
        record = record.model_copy(update={"workers": inputs.workers})
    return record, inputs


def _claim_again(repository: Repository, directory: RunDirectory, record: RunRecord) -> None:
    """Create the branches that the dead process had planned but not created."""
    workers = [RecordedWorker(directory, record, spec) for spec in record.workers]
    waiting = [worker for worker in workers if directory.result(worker.number) is None]
    with repository.lock():
        if not all(worker.still_owns_its_number(repository) for worker in waiting):
            raise ConfigError(
                f"run {record.run_id} cannot be resumed: a later run uses the number, branch or "
                "worktree of one of its unfinished workers",
                key="run.superseded",
                hint="start a new run with `orchestrator parallel`",
            )
        refs = worker_refs(repository)
        missing = [worker.spec.branch for worker in waiting if worker.spec.ref not in refs]
        if missing:
            repository.claim(missing, record.base, keep=base_ref(record))


def _is_done(directory: RunDirectory, record: RunRecord) -> bool:
    numbers = [spec.worker_id for spec in record.workers]
    return all(
        directory.result(number) is not None and not awaits_turn(directory, number)
        for number in numbers
    )
