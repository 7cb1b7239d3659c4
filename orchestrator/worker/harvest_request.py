"""Everything that the harvest of one worker needs, also after the run of the worker died."""

from dataclasses import dataclass
from typing import Self

from orchestrator.config.container import Limits
from orchestrator.engine import labels as label
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.execution.dead_man_switch import Switch
from orchestrator.git.kept_refs import kept_prefix
from orchestrator.git.quarantine import Origin
from orchestrator.git.repository import Repository
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.state.run_directory import RunDirectory
from orchestrator.text.redact import Redactor
from orchestrator.worker.context import WorkerContext, run_labels
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.mounts import Workspace

_MOMENT = 128 * 1024**2
"""Bytes that a fast writer gets to the disk between its limit and its end."""


@dataclass(frozen=True, kw_only=True)
class HarvestRequest:
    """The harvest of one worker."""

    repository: Repository
    engine: ContainerEngine
    switch: Switch
    """Ends the container of the harvest if this process is gone."""
    directory: RunDirectory
    spec: WorkerSpec
    workspace: Workspace
    base: str
    """The commit that the worker started from."""
    shallow: frozenset[str]
    """Commits of the base's history that are cut off from their parents."""
    limits: Limits
    cpus: float
    redactor: Redactor
    resumed: bool
    """Whether another process may have begun the harvest."""

    @classmethod
    def of(cls, worker: WorkerContext, workspace: Workspace) -> Self:
        """Return the harvest of a worker whose run is alive."""
        run = worker.run
        return cls(
            repository=run.repository,
            engine=run.engine,
            switch=run.switch,
            directory=run.directory,
            spec=worker.spec,
            workspace=workspace,
            base=worker.base,
            shallow=run.shallow,
            limits=worker.config.limits,
            cpus=worker.cpus,
            redactor=run.redactor,
            resumed=run.resumed,
        )

    @property
    def run_id(self) -> str:
        """The id of the worker's run."""
        return self.directory.run_id

    @property
    def checkpoints(self) -> Checkpoints:
        """How far the worker and its harvest have come."""
        return Checkpoints(self.workspace.store.root)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the harvest's container."""
        ours = run_labels(self.repository, self.directory, role="harvest")
        return {**ours, label.WORKER: str(self.spec.worker_id)}

    @property
    def kept_prefix(self) -> str:
        """What the names of the refs begin with that keep other commits of this attempt."""
        worker_id = self.spec.worker_id
        attempt = len(self.directory.attempts(worker_id)) + 1
        return kept_prefix(self.run_id, worker_id, attempt=attempt)

    @property
    def room(self) -> int:
        """The bytes that a worker's changes may have: on the disk, and as content of git-lfs."""
        # A worker is stopped a moment after its limit, and what it wrote until then counts.
        return 2 * self.limits.disk + _MOMENT

    @property
    def origin(self) -> Origin:
        """What the worker's commits may be made of."""
        return Origin(
            base=self.base,
            start=self.workspace.start,
            objects=self.workspace.objects,
            shallow=self.shallow,
            room=self.room,
        )
