"""Run the commands of a project once, on a commit and without an agent, as a worker would."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.events import Event, RunStarted
from orchestrator.base.results import Reason
from orchestrator.config.derived import for_commands, with_changes
from orchestrator.config.settings.project import Check, Project
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import RunDirectory

# Checks are only run on a commit of the worker's own.
_TASK = "git commit --quiet --allow-empty --message 'The base, to be checked'"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What the commands did."""

    setup: str | None
    """Why the setup commands failed; None if they did not."""
    checks: tuple[str | None, ...]
    """Why each check did not pass; None for a check that passed."""


class Trial:
    """Runs setup commands and checks in fresh containers; nothing is left of a run but its result.

    The commands get what the settings give to the setup and checks of a worker.
    """

    def __init__(self, config: ParallelConfig, root: Path, engine: ContainerEngine) -> None:
        """Store the arguments.

        Args:
            config: The settings, of which tasks, setup and checks do not matter.
            root: The repository's top directory.
            engine: The container engine.
        """
        self._config = config
        self._root = root
        self._engine = engine
        self._state_dir = Repository(root).state_dir
        self._runner: ParallelRunner | None = None

    def run(
        self, setup: Sequence[str], checks: Sequence[str], teardown: Sequence[str], *, limit: float
    ) -> Tried:
        """Run setup commands, and then checks on a commit that has the files of the base.

        Args:
            setup: Setup commands.
            checks: Checks.
            teardown: Commands that remove what the setup created.
            limit: Maximum number of seconds of all setup commands together, and of each check.

        Raises:
            OrchestratorError: The run could not start.
        """
        project = Project(
            setup=tuple(setup),
            setup_timeout=limit,
            teardown=tuple(teardown),
            checks=tuple(Check(run=command, timeout=limit) for command in checks),
            caches=self._config.project.caches,
            services=self._config.project.services,
        )
        alone = for_commands(self._config, (_TASK,))
        config = with_changes(alone, retries=0, worktrees="none", project=project)
        self._runner = ParallelRunner(config, self._root, emit=self._note, engine=self._engine)
        result = self._runner.execute()
        cleanup(self._root, engine=self._engine, run_id=result.run_id, purge=True)
        (worker,) = result.results
        said = worker.message or str(worker.reason)
        if worker.reason is Reason.SETUP_FAILED:
            return Tried(setup=said.removeprefix("setup: "), checks=(said,) * len(checks))
        found = [None if check.passed else check.message or said for check in worker.checks or ()]
        # Checks without a result: the machine failed, or the run was cancelled.
        return Tried(setup=None, checks=(*found, *[said] * (len(checks) - len(found))))

    def cancel(self, *, kill: bool = False) -> None:
        """Stop the commands.

        Args:
            kill: Whether to kill the container without a grace period.
        """
        if self._runner is not None:
            self._runner.cancel(kill=kill)

    def _note(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            RunDirectory(self._state_dir / "runs" / event.run_id).mark_as_test()
