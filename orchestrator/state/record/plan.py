"""Add to the model of a run what only the run's plan contains: names, agents, dependencies."""

from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.timing import summarise
from orchestrator.state.record.run_view import RunView
from orchestrator.state.run_record import RunRecord


def add_plan(run: RunView, record: RunRecord | None) -> None:
    """Add the plan of a run to a snapshot of the run.

    Args:
        run: The snapshot, which is changed.
        record: The plan; None if an older version wrote it with settings that are unknown now.
    """
    workflow = record.workflow if record else None
    run.name = workflow.name if workflow else None
    run.critical_path = critical_path(run, workflow)
    for worker in run.workers:
        task = workflow.by_id.get(worker.name) if workflow and worker.name else None
        if record is not None:
            worker.agent = (task.settings.agent_cli if task else None) or record.config.agent_cli
        worker.depends_on = task.depends_on if task else ()
        worker.is_critical = worker.key in run.critical_path


def critical_path(run: RunView, workflow: Workflow | None) -> tuple[str, ...]:
    """Return the keys of the workers that determined the duration of a run, in order."""
    if workflow is not None:
        results = [worker.result for worker in run.workers if worker.result]
        wall, slots = max(run.duration, 0.0), len(run.by_number)
        return summarise(results, wall=wall, slots=slots, workflow=workflow).critical_path
    begun = [worker for worker in run.workers if worker.phases]
    if len(begun) < 2:
        return ()
    return (max(begun, key=lambda worker: worker.phases[-1].end).key,)
