"""What a workflow's run takes over from an earlier one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.history import named_run
from orchestrator.record import RunDirectory, RunRecord, all_runs
from orchestrator.repository import Repository
from orchestrator.results import Status
from orchestrator.workflow.model import Earlier
from orchestrator.workflow.reading import Reading
from orchestrator.workflow.selection import missing, starting_at


def earlier_run(named: str) -> RunRecord:
    """Find the run that another one is to go on from.

    Raises:
        ConfigError: There is none, or it is not one of a workflow.
    """
    runs = list(all_runs(Repository(Path.cwd()).state_dir))
    record = named_run(runs, named).record()
    if record is None or record.workflow is None:
        raise ConfigError(f"run {named} is not one of a workflow", hint="`orchestrator ls`")
    return record


def without_done(reading: Reading, earlier: RunRecord, again: Sequence[str]) -> Reading:
    """Leave out what succeeded in an earlier run.

    Args:
        reading: All tasks.
        earlier: The run.
        again: Ids of tasks that are done over, with all that depend on them.

    Raises:
        ConfigError: Nothing is left to do.
    """
    done = _done(earlier)
    if again:
        anew = {task.id for task in starting_at(reading.workflow, again).workflow.tasks}
        done = {name: one for name, one in done.items() if name not in anew}
    return replace(reading, workflow=missing(reading.workflow, done))


def _done(record: RunRecord) -> dict[str, Earlier]:
    """Give the tasks that succeeded in a run, or in those that it went on from."""
    directory = RunDirectory(Repository(record.top).state_dir / "runs" / record.run_id)
    tasks = record.workflow.tasks if record.workflow else ()
    found = {one.task: one for task in tasks for one in task.earlier}
    for spec in record.workers:
        result = directory.result(spec.worker_id)
        if spec.name and result is not None and result.status is Status.SUCCESS:
            found[spec.name] = Earlier(
                task=spec.name, run_id=record.run_id, worker_id=spec.worker_id
            )
    return found
