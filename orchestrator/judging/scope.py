"""Read which files a worker was allowed to change."""

from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import read_record
from orchestrator.workflow.planning import config_of


def allowed_paths(run: RunDirectory, worker_id: int) -> tuple[str, ...]:
    """Return the `paths` of a worker's task as patterns; empty if any file may be changed."""
    record = read_record(run)
    if record is None:
        return ()
    config = record.config
    name = next((one.name for one in record.workers if one.worker_id == worker_id), None)
    if record.workflow is not None and name is not None:
        config = config_of(config, record.workflow[name], record.programs)
    return config.triggers.paths
