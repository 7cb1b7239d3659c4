"""What a workflow's run takes over from an earlier one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.git.repository import Repository
from orchestrator.results import Status, WorkerResult
from orchestrator.state.history import named_run
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_record import RunRecord
from orchestrator.workflow.contents import digests, matches
from orchestrator.workflow.model import Earlier, Workflow
from orchestrator.workflow.parsing.reader import Reading
from orchestrator.workflow.selection import missing, starting_at

_NAMED = 10
"""Tasks that a message names."""


def earlier_run(named: str) -> RunRecord:
    """Find the run that another one is to go on from.

    Raises:
        ConfigError: There is none, it goes on, or it is not one of a workflow.
    """
    runs = list(all_runs(Repository(Path.cwd()).state_dir))
    directory = named_run(runs, named)
    record = directory.record()
    if record is None or record.workflow is None:
        raise ConfigError(f"run {named} is not one of a workflow", hint="`orchestrator ls`")
    if directory.is_live():
        raise ConfigError(
            f"run {directory.run_id} still goes on: its tasks would run a second time",
            hint=f"`orchestrator wait {directory.run_id}` waits for its end",
        )
    return record


def without_done(reading: Reading, earlier: RunRecord, again: Sequence[str]) -> Reading:
    """Leave out what an earlier run has done.

    A task is done if it succeeded there, does the same still, and all that it depends on is done.

    Args:
        reading: All tasks.
        earlier: The run.
        again: Ids of tasks that are done over, with all that depend on them.

    Raises:
        ConfigError: Nothing is left to do, or what is to be gone on from was removed.
    """
    workflow = reading.workflow
    anew: set[str] = set()
    if again:
        anew = {task.id for task in starting_at(workflow, again).workflow.tasks}
    there = _Earlier(earlier)
    same = matches(workflow, {name: one.digest for name, one in there.tasks.items()})
    over: set[str] = set()
    done: dict[str, Earlier] = {}
    for task in workflow.tasks:
        other = same.get(task.id)
        if other is None or task.id in anew or not {*task.depends_on} <= over:
            continue
        if there.succeeded(other):
            over.add(task.id)
            if not there.never_ran(other):
                done[task.id] = there.tasks[other].model_copy(update={"task": task.id})
    if len(over) == len(workflow.tasks):
        raise ConfigError(
            "all tasks of the workflow succeeded in that run: nothing is left to do",
            hint=f"lists of `foreach` are read from {earlier.base[:12]}, where that run started; "
            "leave `--after` out to start from a newer commit",
        )
    there.check_kept(workflow, done)
    moved = {other for name, other in same.items() if name != other}
    repeated = [task.id for task in workflow.tasks if task.id not in over | anew | moved]
    notices = (*reading.notices, *there.changes(repeated))
    return replace(reading, workflow=missing(workflow, done), notices=notices)


class _Earlier:
    """What the tasks of an earlier run came to."""

    def __init__(self, record: RunRecord) -> None:
        self._run_id = record.run_id
        self._repository = Repository(record.top)
        self.tasks = _tasks_of(record)
        """All tasks that it had, or that it went on from, by their ids."""

    def succeeded(self, name: str) -> bool:
        """Check whether a task has succeeded, also where its record was removed since."""
        result = self._result(name)
        if result is None:
            # The run went on from a task of another run, which is gone by now.
            return self.tasks[name].run_id != self._run_id
        return result.status is Status.SUCCESS

    def never_ran(self, name: str) -> bool:
        """Check whether a task was not needed."""
        result = self._result(name)
        return result is not None and result.never_ran

    def check_kept(self, workflow: Workflow, done: Mapping[str, Earlier]) -> None:
        """Refuse to go on from commits that are not there any more.

        Raises:
            ConfigError: A cleanup has removed them.
        """
        rest = [task for task in workflow.tasks if task.id not in done]
        needed = {name for task in rest for name in task.depends_on} & done.keys()
        for name in sorted(needed):
            result = self._read(done[name])
            try:
                self._repository.resolve((result and result.commit) or "")
            except OrchestratorError as error:
                raise ConfigError(
                    f"what task `{name}` made in run {done[name].run_id} was removed",
                    hint=f"`--from {name}` does it again",
                ) from error

    def changes(self, names: Sequence[str]) -> list[str]:
        """Return a line on those of the tasks that succeeded, as they are done again."""
        found = [name for name in names if name in self.tasks and self.succeeded(name)]
        if not found:
            return []
        shown = ", ".join(f"`{name}`" for name in found[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return [
            f"done again, since they or what they depend on are not as in run {self._run_id}: "
            f"{shown}{more}"
        ]

    def _result(self, name: str) -> WorkerResult | None:
        return self._read(self.tasks[name])

    def _read(self, one: Earlier) -> WorkerResult | None:
        directory = RunDirectory(self._repository.state_dir / "runs" / one.run_id)
        return directory.result(one.worker_id)


def _tasks_of(record: RunRecord) -> dict[str, Earlier]:
    workflow = record.workflow
    if workflow is None:
        return {}
    found = {one.task: one for one in workflow.done}
    known = digests(workflow)
    for spec in record.workers:
        if spec.name is not None:
            found[spec.name] = Earlier(
                task=spec.name,
                run_id=record.run_id,
                worker_id=spec.worker_id,
                digest=known[spec.name],
            )
    return found
