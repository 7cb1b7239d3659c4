"""Which worker gets which task and model. Pure."""

from pydantic import BaseModel, ConfigDict

DEFAULT_MODEL = "default"


class WorkerSpec(BaseModel):
    """One worker's job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker_id: int
    task: str
    model: str | None
    name: str | None = None
    """The id of its task, in a workflow."""
    required: bool = True
    """Whether the run fails with it."""

    @property
    def model_name(self) -> str:
        """The model as results show it."""
        return self.model or DEFAULT_MODEL

    @property
    def directory(self) -> str:
        """The worktree's name at the repository's top level."""
        return f".architect-parallel-{self.worker_id}"

    @property
    def branch(self) -> str:
        """The worker's branch, without `refs/heads/`."""
        return f"architect/parallel-{self.worker_id}"
