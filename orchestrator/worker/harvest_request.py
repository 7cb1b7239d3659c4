"""The inputs of one worker's harvest, also available after its run died."""

from dataclasses import dataclass

from orchestrator.config.container import Limits
from orchestrator.engine import labels as label
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.execution.dead_man_switch import Switch
from orchestrator.git.kept_refs import kept_prefix
from orchestrator.git.quarantine import HandedOver, Origin
from orchestrator.git.repository import Repository
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.state.run_directory import RunDirectory
from orchestrator.text.redact import Redactor
from orchestrator.text.sanitize import one_line
from orchestrator.worker.labels import run_labels
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.mounts import Workspace

_MESSAGE = "architect: uncommitted work of worker {worker}\n\nTask: {task}\n"
_MOMENT = 128 * 1024**2
"""Bytes that a fast writer can write after it exceeded its limit, before it is stopped."""


@dataclass(frozen=True, kw_only=True)
class HarvestRequest:
    """The inputs of one worker's harvest."""

    repository: Repository
    engine: ContainerEngine
    switch: Switch
    """Kills the harvest's container if this process is gone."""
    directory: RunDirectory
    spec: WorkerSpec
    workspace: Workspace
    base: str
    """The commit that the worker started from."""
    shallow: frozenset[str]
    """Commits of the base's history whose parents are missing."""
    limits: Limits
    cpus: float
    redactor: Redactor
    resumed: bool
    """Whether another process may have started the harvest."""

    @property
    def run_id(self) -> str:
        """The id of the worker's run."""
        return self.directory.run_id

    @property
    def checkpoints(self) -> Checkpoints:
        """Checkpoints of the worker and its harvest."""
        return Checkpoints(self.workspace.store.root)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the harvest's container."""
        ours = run_labels(self.repository, self.directory, role="harvest")
        return {**ours, label.WORKER: str(self.spec.worker_id)}

    @property
    def message(self) -> str:
        """The message of the commit with the worker's uncommitted files."""
        task = one_line(self.redactor.text(self.spec.task), limit=500)
        return _MESSAGE.format(worker=self.spec.worker_id, task=task)

    @property
    def kept_prefix(self) -> str:
        """Prefix of the refs that keep other commits of this attempt."""
        worker_id = self.spec.worker_id
        attempt = len(self.directory.attempts(worker_id)) + 1
        return kept_prefix(self.run_id, worker_id, attempt=attempt)

    @property
    def room(self) -> int:
        """Largest size of a worker's changes in bytes: of its files, and of its LFS content."""
        # A worker is stopped shortly after it exceeds its limit; what it wrote until then is
        # allowed.
        return 2 * self.limits.disk + _MOMENT

    @property
    def origin(self) -> Origin:
        """The objects that the worker's commits may consist of."""
        return Origin(
            base=self.base,
            start=self.workspace.start,
            objects=self.workspace.objects,
            shallow=self.shallow,
            room=self.room,
        )

    @property
    def handed_over(self) -> HandedOver:
        """The output of the harvest's container, before it is checked."""
        store = self.workspace.store
        return HandedOver(
            repository=self.repository,
            out=store.out,
            quarantine=store.quarantine,
            origin=self.origin,
        )
