"""A run that this process carries out: it holds the lease, a lock file of the run."""

from dataclasses import dataclass, field

from orchestrator.execution.run_outcome import RunOutcome
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import RunRecord


@dataclass(frozen=True)
class ClaimedRun:
    """The record, directory and workers of a run whose lease (lock file) this process holds."""

    record: RunRecord
    directory: RunDirectory
    outcome: RunOutcome = field(default_factory=RunOutcome)
