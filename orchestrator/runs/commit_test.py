"""Run the project's checks on a commit in fresh containers, as a run of its own."""

import json
from collections.abc import Sequence
from pathlib import Path

from orchestrator.cleanup.remove import cleanup
from orchestrator.config.container import Isolation
from orchestrator.config.project import Project
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.errors import EngineError
from orchestrator.events import Event, RunStarted
from orchestrator.git.repository import Repository
from orchestrator.landing.branches import TEST_OF_MERGE
from orchestrator.landing.queue import Answer
from orchestrator.results import Reason, RunResult, Status
from orchestrator.runs.runner import ParallelRunner

_BLAMELESS = frozenset(
    {
        Reason.ENGINE_ERROR, Reason.INTERNAL_ERROR, Reason.CANCELLED, Reason.NETWORK_LOST,
        Reason.SETUP_FAILED, Reason.RATE_LIMITED, Reason.AUTH, Reason.BUDGET,
        Reason.HARVEST_REFUSED,
    }
)  # fmt: skip
"""Reasons of a failed run that say nothing about the tested commit."""


class ContainerTest:
    """Runs checks on commits in containers that have no variables, secrets or ports of the user."""

    def __init__(
        self, config: ParallelConfig, checks: Sequence[str], root: Path, engine: ContainerEngine
    ) -> None:
        """Configure the test.

        Args:
            config: Settings of the project: image, limits, setup, services.
            checks: The commands; every one must succeed.
            root: The repository's top directory.
            engine: The container engine.
        """
        ours, empty = config.isolation, Isolation()
        withheld = {key: getattr(empty, key) for key in ("env", "secrets", "ports", "copied")}
        open_to = {"network": ours.check_network, "allow": ours.check_allow}
        project = config.project.model_copy(update={"checks": Project().checks})
        self._config = config.model_copy(
            update={
                "tasks": tuple(checks), "models": (), "agent_cli": "shell", "worktrees": "none",
                "include_uncommitted": False, "retries": 0, "project": project,
                "isolation": ours.model_copy(update={**withheld, **open_to}),
            }
        )  # fmt: skip
        self._root = root
        self._state_dir = Repository(root).state_dir
        self._engine = engine
        self.runs: list[str] = []
        """Ids of the runs so far."""

    def identity(self, image: str) -> str:
        """Return a text that is equal for two tests that run the same checks in the same way.

        Args:
            image: Id of the image.
        """
        decisive = {"tasks", "limits", "isolation", "project"}
        settings = self._config.model_dump(mode="json", include=decisive)
        return json.dumps([image, settings], sort_keys=True, default=str)

    def __call__(self, commit: str) -> Answer:
        """Run the checks on a commit, and return the result."""
        config = self._config.model_copy(update={"base": commit})
        runner = ParallelRunner(config, self._root, emit=self._note, engine=self._engine)
        try:
            result = runner.execute()
        except EngineError:
            return "none"
        cleanup(self._root, engine=self._engine, run_id=result.run_id, purge=True)
        return answer_of(result)

    def _note(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.runs.append(event.run_id)
            (self._state_dir / "runs" / event.run_id / TEST_OF_MERGE).touch()


def answer_of(result: RunResult) -> Answer:
    """Return the single answer that the results of all checks amount to."""
    if any(one.reason in _BLAMELESS for one in result.results):
        return "none"
    passed = all(one.status is Status.SUCCESS for one in result.results)
    return "pass" if passed else "fail"
