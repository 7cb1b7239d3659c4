"""Protocols of a run and of its creation, for modules that get `ParallelRunner` as an argument."""

from pathlib import Path
from typing import Protocol

from orchestrator.config.run import ParallelConfig
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.events import Emit
from orchestrator.results import RunResult


class Runner(Protocol):
    """A run that can be executed and cancelled, such as a `ParallelRunner`."""

    def execute(self) -> RunResult:
        """Run all workers and return the run's result."""

    def cancel(self, *, kill: bool = False) -> None:
        """Stop every worker of the run."""


class MakeRunner(Protocol):
    """Creates the runner of a run."""

    def __call__(
        self, config: ParallelConfig, root: Path, *, emit: Emit, engine: ContainerEngine
    ) -> Runner:
        """Create the runner of a run, without starting the run."""
