"""Continue a workflow from the results of an earlier run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.results import Status, WorkerResult
from orchestrator.config.derived import with_changes
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.contents import digests, matches
from orchestrator.config.workflow.model import Earlier, Workflow
from orchestrator.config.workflow.parsing.reader import Reading
from orchestrator.config.workflow.planning import NO_PROGRAMS, Programs, config_of, same_work
from orchestrator.config.workflow.selection import missing, starting_at
from orchestrator.faces.cli.output.messages import tell
from orchestrator.repository.repository import Repository
from orchestrator.state.record.history import find_run
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_record import RunRecord, read_record

_NAMED = 10
"""Maximum number of tasks that one message names."""


def earlier_run(named: str) -> RunRecord:
    """Return the record of the run that a workflow continues from.

    Raises:
        ConfigError: The run does not exist, is still running, or is not a run of a workflow.
    """
    runs = list(all_runs(Repository(Path.cwd()).state_dir))
    directory = find_run(runs, named)
    record = read_record(directory)
    if record is None or record.workflow is None:
        raise ConfigError(
            f"`--after`: run {named} has no record of a workflow",
            key="workflow.unrecorded",
            hint="`orchestrator ls --all` lists the runs",
        )
    # protection: continuing-from-live-run-refused
    if directory.is_live():
        raise ConfigError(
            f"run {directory.run_id} is still running: its tasks would run twice",
            key="run.live",
            hint=f"wait for the run's end: `orchestrator wait {directory.run_id}`",
        )
    return record


def with_earlier_base(
    config: ParallelConfig, earlier: RunRecord, *, base_given: bool
) -> ParallelConfig:
    """Return the settings with the base of the earlier run, unless the user gave another one.

    A notice says if HEAD has moved on since.

    Raises:
        ConfigError: Workers without history cannot have commits of two bases.
    """
    if base_given:
        if config.isolation.history == "shallow":
            raise ConfigError(
                "`--after` with `--base` requires `history: full`", key="option.incomplete"
            )
        return config
    head = Repository(Path.cwd()).resolve("HEAD")
    if head != earlier.base and not config.include_uncommitted:
        tell(
            f"notice: tasks start from {earlier.base[:12]}, as in run {earlier.run_id}; HEAD is at "
            f"{head[:12]} now: `--base HEAD` starts the remaining tasks there"
        )
    return with_changes(config, base=earlier.base, include_uncommitted=False)


def without_done(
    reading: Reading,
    earlier: RunRecord,
    again: Sequence[str],
    config: ParallelConfig,
    programs: Programs = NO_PROGRAMS,
) -> Reading:
    """Return a workflow without the tasks that an earlier run completed.

    A task is complete if it succeeded in the earlier run, its text and the settings that affect
    its work have not changed, and all its dependencies are complete.

    Args:
        reading: The whole workflow.
        earlier: The record of the earlier run.
        again: Ids of tasks to repeat, with all tasks that depend on them.
        config: The settings of the run, which tasks inherit.
        programs: Settings of tasks that use another agent program, by the program's name.

    Raises:
        ConfigError: All tasks are complete, or results of the earlier run were removed.
    """
    workflow = reading.workflow
    repeated_ids: set[str] = set()
    if again:
        repeated_ids = {task.id for task in starting_at(workflow, again).workflow.tasks}
    there = _Earlier(earlier)
    same = matches(workflow, {name: task.digest for name, task in there.tasks.items()})
    over: set[str] = set()
    done: dict[str, Earlier] = {}
    for task in workflow.tasks:
        other = same.get(task.id)
        if other is None or task.id in repeated_ids or not {*task.depends_on} <= over:
            continue
        before = config_of(earlier.config, task, earlier.programs)
        if not same_work(config_of(config, task, programs), before):
            continue
        if there.succeeded(other):
            over.add(task.id)
            if not there.never_ran(other):
                done[task.id] = there.tasks[other].model_copy(update={"task": task.id})
    if len(over) == len(workflow.tasks):
        raise ConfigError(
            f"all tasks of the workflow succeeded in run {earlier.run_id}: no task is left to run",
            key="workflow.done",
            hint=f"`--after` keeps the base {earlier.base[:12]} of that run; leave it out to "
            "start from a newer commit",
        )
    # protection: continuing-from-purged-run-refused
    there.check_kept(workflow, done)
    moved = {other for name, other in same.items() if name != other}
    repeated = [task.id for task in workflow.tasks if task.id not in over | repeated_ids | moved]
    notices = (*reading.notices, *there.changes(repeated))
    return replace(reading, workflow=missing(workflow, done), notices=notices)


class _Earlier:
    """Results of the tasks of an earlier run."""

    def __init__(self, record: RunRecord) -> None:
        self._run_id = record.run_id
        self._repository = Repository(record.top)
        self.tasks = _tasks_of(record)
        """Tasks of the run by id, with the completed tasks of the runs that it continued."""

    def succeeded(self, name: str) -> bool:
        """Return whether a task succeeded, even if its record has been removed in the meantime."""
        result = self._result(name)
        if result is None:
            # The task was completed by a still earlier run, whose record was removed.
            return self.tasks[name].run_id != self._run_id
        return result.status is Status.SUCCESS

    def never_ran(self, name: str) -> bool:
        """Return whether a task was skipped in the earlier run, so that it never started."""
        result = self._result(name)
        return result is not None and result.never_ran

    def check_kept(self, workflow: Workflow, done: Mapping[str, Earlier]) -> None:
        """Check that the commits of completed tasks still exist.

        Raises:
            ConfigError: The commits were removed by a cleanup.
        """
        rest = [task for task in workflow.tasks if task.id not in done]
        needed = {name for task in rest for name in task.depends_on} & done.keys()
        for name in sorted(needed):
            result = self._read(done[name])
            try:
                self._repository.resolve((result and result.commit) or "")
            except OrchestratorError as error:
                raise ConfigError(
                    f"the result of task `{name}` in run {done[name].run_id} was removed",
                    key="result.missing",
                    hint=f"use `--from {name}` to run the task again",
                ) from error

    def changes(self, names: Sequence[str]) -> list[str]:
        """Return a notice about tasks that succeeded earlier and run again because they changed."""
        changed = [name for name in names if name in self.tasks and self.succeeded(name)]
        if not changed:
            return []
        shown = ", ".join(f"`{name}`" for name in changed[:_NAMED])
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        return [
            f"tasks that run again, because they or their dependencies changed since run "
            f"{self._run_id}: {shown}{more}"
        ]

    def _result(self, name: str) -> WorkerResult | None:
        return self._read(self.tasks[name])

    def _read(self, task: Earlier) -> WorkerResult | None:
        directory = RunDirectory(self._repository.state_dir / "runs" / task.run_id)
        return directory.result(task.worker_id)


def _tasks_of(record: RunRecord) -> dict[str, Earlier]:
    workflow = record.workflow
    if workflow is None:
        return {}
    tasks = {task.task: task for task in workflow.done}
    known = digests(workflow)
    for spec in record.workers:
        if spec.name is not None:
            tasks[spec.name] = Earlier(
                task=spec.name,
                run_id=record.run_id,
                worker_id=spec.worker_id,
                digest=known[spec.name],
            )
    return tasks
