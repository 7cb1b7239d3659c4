"""Read, follow, repeat and remove recorded runs, for Python programs."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Self

from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Emit, Event
from orchestrator.base.results import RunResult, WorkerResult
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import config_of
from orchestrator.engine import load_engine
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import RecordedWorker, Wanted
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.report import CleanupReport
from orchestrator.runs.cleanup.restore import RestoredWorker
from orchestrator.runs.cleanup.restore import restore as bring_back
from orchestrator.runs.planning.private_values import AGAIN, with_private_values
from orchestrator.runs.reports.formats import FORMATS
from orchestrator.runs.reports.model import read_run
from orchestrator.runs.resuming.continued_worker import ContinuedWorker
from orchestrator.runs.resuming.continuing import Message, check_message
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.record.history import RunHistory, choose_run
from orchestrator.state.record.listing import Listing
from orchestrator.state.record.listing import list_runs as listed
from orchestrator.state.record.stop_request import request_stop
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_record import RunRecord, require_record
from orchestrator.state.worker.turns import NextTurn

_TICK = 0.1
"""Seconds between two checks whether a run's files contain new events."""
_REDACTED = "[redacted:"


class History(RunHistory):
    """A recorded run: live, ended, or without an end because its process died."""

    @classmethod
    def open(cls, root: Path | str | None = None, run: str | None = None) -> Self:
        """Open the record of a run.

        Args:
            root: Any directory in the repository. Default: the current directory.
            run: The run's id, or the beginning of it. Default: the newest run.

        Raises:
            ConfigError: There is no such run.
        """
        found = choose_run(list(all_runs(_repository(root).state_dir)), run)
        return cls(found.directory, found.record)

    async def events(self, *, follow: bool = True) -> AsyncIterator[Event]:
        """Yield all recorded events, oldest first.

        Args:
            follow: Whether to yield the events of a live run until its end, as they happen.
        """
        with RunHistory(self.directory, self.record) as reader:
            while True:
                # Checked before reading, so that everything written before the end is read.
                goes_on = follow and self.directory.is_live()
                events = await asyncio.to_thread(reader.read)
                for event in events:
                    yield event
                if not events and not goes_on:
                    return
                if not events:
                    await asyncio.sleep(_TICK)

    async def wait(self) -> RunResult:
        """Wait for the end of the run, and return its result.

        Raises:
            RunDiedError: The run's process died.
        """
        while self.directory.is_live():
            await asyncio.sleep(_TICK)
        return await asyncio.to_thread(self.result)

    def stop(self, workers: Sequence[int] = (), *, kill: bool = False) -> list[int]:
        """Ask the run's process to stop workers, and return those that had not ended.

        Args:
            workers: Numbers of the workers. Default: all workers of the run.
            kill: Whether the workers are killed at once, without the grace period.

        Raises:
            ConfigError: The run has no such worker, or has ended.
        """
        return request_stop(self, workers or list(self.workers), kill=kill)


def list_runs(root: Path | str | None = None, *, everything: bool = False) -> Listing:
    """List the runs of a repository, oldest first.

    Args:
        root: Any directory in the repository. Default: the current directory.
        everything: Whether to list runs of which only the record is left, too.
    """
    return listed(_repository(root), everything=everything)


def report(root: Path | str | None = None, *, run: str | None = None, format: str = "json") -> str:
    """Return a report on a run: live, ended or dead.

    Args:
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run.
        format: `json`, `markdown`, `html`, `junit`, or another format of `orchestrator report`.

    Raises:
        ConfigError: There is no such run or format, or the run's record cannot be read.
    """
    if format not in FORMATS:
        raise ConfigError(
            f"`format` is `{one_line(format)}`: must be one of {', '.join(FORMATS)}",
            key="report-format.unknown",
        )
    directory = History.open(root, run).directory
    found = read_run(directory)
    if found is None:
        raise ConfigError(
            f"the record of run {directory.run_id} is missing or unreadable", key="run.unreadable"
        )
    return FORMATS[format].render(found)


def resume(
    root: Path | str | None = None, *, run: str | None = None, emit: Emit | None = None
) -> RunResult:
    """Continue a run whose process died, and return its result; finished tasks are not repeated.

    Args:
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run.
        emit: Receives the events of the run, from several threads.

    Raises:
        OrchestratorError: The run is live, or cannot be continued.
    """
    return ResumedRun(History.open(root, run).directory, emit=emit).execute()


def retry(
    worker: int,
    root: Path | str | None = None,
    *,
    run: str | None = None,
    message: str | NextTurn | None = None,
    emit: Emit | None = None,
) -> RunResult:
    """Repeat one worker that has ended, as a new run, and return its result.

    Args:
        worker: Number of the worker.
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run with the worker.
        message: A text in place of the task, also with other limits. Default: the task.
        emit: Receives the events of the new run, from several threads.

    Raises:
        OrchestratorError: The worker runs, or a value that was not recorded is missing.
    """
    repository = _repository(root)
    config = config_to_repeat(repository, run, worker, message=_turn(message))
    return ParallelRunner(config, repository.top, emit=emit).execute()


def continue_worker(
    worker: int,
    message: str | NextTurn,
    root: Path | str | None = None,
    *,
    run: str | None = None,
    emit: Emit | None = None,
) -> WorkerResult:
    """Continue one worker with a message, from its branch and in its session; return its result.

    A message for a running worker waits for the end of its turn.

    Args:
        worker: Number of the worker.
        message: The message, also with other limits or another model.
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run with the worker.
        emit: Receives the events of the turn, from several threads, unless the run is live.

    Raises:
        OrchestratorError: The worker cannot continue.
    """
    runs = list(all_runs(_repository(root).state_dir))
    with choose_run(runs, run, worker=worker) as history:
        directory = history.directory
    turn = _turn(message)
    if turn is None:
        raise ConfigError("the message is missing", key="message.empty")
    continued = ContinuedWorker(directory, Message(worker, turn), emit=emit)
    return continued.execute().results[0]


def _turn(message: str | NextTurn | None) -> NextTurn | None:
    if message is None:
        return None
    text = message if isinstance(message, str) else message.message
    check_message(text)
    return NextTurn(message=text) if isinstance(message, str) else message


def config_to_repeat(
    repository: Repository,
    run: str | None,
    worker: int,
    *,
    message: NextTurn | None = None,
    keep: bool = False,
) -> ParallelConfig:
    """Return the settings of a run that repeats one worker that has ended.

    Args:
        repository: The repository.
        run: The run's id, or the beginning of it. Default: the newest run with the worker.
        worker: Number of the worker.
        message: The task and the settings in place of the recorded ones. Default: the same.
        keep: Whether to start from the worker's branch, instead of the base.

    Raises:
        ConfigError: The worker runs, or a value that was not recorded is missing.
    """
    with choose_run(list(all_runs(repository.state_dir)), run, worker=worker) as history:
        directory = history.directory
        result = directory.result(worker)
        if directory.is_live() and result is None:
            raise ConfigError(
                f"worker {worker} of run {history.run_id} is still running",
                key="worker.live",
                hint=f"stop it first: `orchestrator stop {worker} --run {history.run_id}`",
            )
        record = require_record(directory)
        found = RecordedWorker(directory, record, history.workers[worker].spec)
        base = repository.commit_of(found.spec.ref) if keep else None
        if keep and base is None:
            raise ConfigError(
                f"there is no branch `{found.spec.branch}` to start from", key="worker.gone"
            )
        if message is not None:
            record = _with_task(record, worker, message)
        config = settings_to_repeat(record, worker, os.environ, base=base or found.base)
    return config if message is None else config.model_copy(update=message.settings)


def _with_task(record: RunRecord, worker: int, message: NextTurn) -> RunRecord:
    """Return the record of a run with another task and model of one worker."""
    changes = {"task": message.message, "model": message.model}
    update = {name: value for name, value in changes.items() if value is not None}
    workers = tuple(
        spec.model_copy(update=update) if spec.worker_id == worker else spec
        for spec in record.workers
    )
    return record.model_copy(update={"workers": workers})


def settings_to_repeat(
    record: RunRecord, worker_id: int, environ: Mapping[str, str], *, base: str
) -> ParallelConfig:
    """Return the settings to repeat one worker alone, with the same task, model, base and settings.

    Args:
        record: The record of the earlier run.
        worker_id: The worker.
        environ: Environment variables, among them the values that are not recorded.
        base: The commit that the worker started from.

    Raises:
        ConfigError: A variable with a value that was not recorded is missing.
    """
    spec = next(spec for spec in record.workers if spec.worker_id == worker_id)
    if "tasks" in record.private and _REDACTED in spec.task + spec.model_name:
        raise ConfigError(
            f"the task of worker {spec.worker_id} contained a secret, which is not recorded",
            key="task.secret",
            hint=AGAIN,
        )
    config = _settings_of_task(record, spec)
    config = with_private_values(config, record, environ)
    return config.model_copy(
        update={
            "tasks": (spec.task,),
            "models": () if spec.model is None else (spec.model,),
            "workers": 1,
            "base": base,
            "include_uncommitted": False,
        }
    )


def _settings_of_task(record: RunRecord, spec: WorkerSpec) -> ParallelConfig:
    """Return the settings that the worker's own task had in the earlier run."""
    if record.workflow is None or spec.name is None:
        return record.config
    task = record.workflow[spec.name]
    if task.inputs:
        raise ConfigError(
            f"task `{task.id}` uses the results of other tasks and cannot be repeated alone",
            key="task.dependent",
            hint=f"`orchestrator spec run FILE --after {record.run_id}` runs the tasks that "
            "did not succeed",
        )
    return config_of(record.config, task, record.programs)


def clean_up(
    root: Path | str | None = None,
    *,
    run: str | None = None,
    workers: Sequence[int] = (),
    merged: bool = False,
    dry_run: bool = False,
) -> CleanupReport:
    """Remove worktrees, branches and containers of finished runs; keep backups of unmerged work.

    Args:
        root: Any directory in the repository. Default: the current directory.
        run: Id of the only run to clean up. Default: all runs.
        workers: Numbers of the workers. Default: all workers.
        merged: Whether only workers are removed whose work is all committed and merged.
        dry_run: Whether to report what would be removed, and remove nothing.

    Raises:
        OrchestratorError: There is no such run or worker, or the engine cannot be reached.
    """
    wanted = Wanted(workers=tuple(workers), merged=merged)
    top = _repository(root).top
    with closing(load_engine("docker")) as engine:
        return cleanup(top, engine=engine, wanted=wanted, run_id=run, dry_run=dry_run)


def restore(
    root: Path | str | None = None, *, run: str | None = None, workers: Sequence[int] = ()
) -> tuple[RestoredWorker, ...]:
    """Restore branches and worktrees from the backups of a cleanup.

    Args:
        root: Any directory in the repository. Default: the current directory.
        run: Id of the run, or the beginning of it. Default: all runs.
        workers: Numbers of the workers. Default: all workers with a backup.

    Raises:
        ConfigError: There is no such backup, or the worktree or branch exists already.
    """
    return bring_back(_repository(root).top, workers=tuple(workers), run_id=run)


def _repository(root: Path | str | None) -> Repository:
    return Repository(Path(root) if root is not None else Path.cwd())
