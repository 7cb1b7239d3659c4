"""A run whose lease this process holds."""

from dataclasses import dataclass, field

from orchestrator.execution.run_outcome import RunOutcome
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import RunRecord


@dataclass(frozen=True)
class ClaimedRun:
    """A run whose lease this process holds."""

    record: RunRecord
    directory: RunDirectory
    outcome: RunOutcome = field(default_factory=RunOutcome)
