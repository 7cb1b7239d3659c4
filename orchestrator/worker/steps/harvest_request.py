"""The input and limits of a worker's harvest, which another process may continue."""

from dataclasses import dataclass

from orchestrator.base.text.redact import Redactor
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.container import Limits
from orchestrator.engine.places.place import Place
from orchestrator.repository.incoming.kept_refs import kept_prefix
from orchestrator.repository.incoming.quarantine import HandedOver, Origin
from orchestrator.repository.repository import Repository
from orchestrator.sandbox.deadlines.dead_man_switch import Switch
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.worker.workspace.mounts import Workspace

HARVEST_TIMEOUT = 300.0
"""Maximum number of seconds for committing and packing a worker's files."""
_MESSAGE = "architect: uncommitted work of worker {worker}\n\nTask: {task}\n"
_MOMENT = 128 * 1024**2
"""Number of bytes that a fast program can write between exceeding its limit and being stopped."""


def room(limits: Limits) -> int:
    """Return the maximum size in bytes of a worker's changed files and new LFS content."""
    # A worker is stopped shortly after it exceeds its limit; what it wrote until then is allowed.
    return 2 * limits.disk + _MOMENT


def message_of(spec: WorkerSpec, redactor: Redactor) -> str:
    """Return the message for a commit of a worker's uncommitted files."""
    # protection: secrets-are-redacted-from-commit-messages
    task = one_line(redactor.text(spec.message or spec.task), limit=500)
    return _MESSAGE.format(worker=spec.worker_id, task=task)


@dataclass(frozen=True, kw_only=True)
class HarvestRequest:
    """The input of a worker's harvest (collecting its commits)."""

    repository: Repository
    place: Place
    """The worker's place, with the step that `harvest_step` returned."""
    switch: Switch
    """The dead man's switch, which kills the harvest's container if this process is gone."""
    directory: RunDirectory
    spec: WorkerSpec
    workspace: Workspace
    base: str
    """The commit that the worker started from."""
    shallow: frozenset[str]
    """Commits in the history of the base whose parents are missing."""
    limits: Limits
    redactor: Redactor
    resumed: bool
    """Whether another process may have begun to collect the worker's commits."""

    @property
    def run_id(self) -> str:
        """The id of the worker's run."""
        return self.directory.run_id

    @property
    def checkpoints(self) -> Checkpoints:
        """Return the files that record which steps of the worker's run are done."""
        return Checkpoints(self.workspace.store.root)

    @property
    def message(self) -> str:
        """Return the message for a commit of the worker's uncommitted files."""
        return message_of(self.spec, self.redactor)

    @property
    def kept_prefix(self) -> str:
        """Return the prefix of the refs that keep this attempt's commits outside of the branch."""
        worker_id = self.spec.worker_id
        attempt = len(self.directory.attempts(worker_id)) + 1
        return kept_prefix(self.run_id, worker_id, attempt=attempt)

    @property
    def room(self) -> int:
        """Return the maximum size in bytes of a worker's changed files and new LFS content."""
        return room(self.limits)

    @property
    def origin(self) -> Origin:
        """Return the objects that the worker was given and that its commits may use."""
        return Origin(
            base=self.base,
            start=self.workspace.start,
            objects=self.workspace.objects,
            shallow=self.shallow,
            room=self.room,
        )

    @property
    def handover(self) -> HandedOver:
        """Return the files in which the worker's commits are handed over, unchecked."""
        store = self.workspace.store
        return HandedOver(
            repository=self.repository,
            out=store.out,
            quarantine=store.quarantine,
            origin=self.origin,
        )
