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
    worktree_dir: str | None = None
    """Where its worktree is, from the repository's top or absolute; null for the default."""
    branch_name: str | None = None
    """The name of its branch; null for the default."""

    @property
    def model_name(self) -> str:
        """The model as results show it."""
        return self.model or DEFAULT_MODEL

    @property
    def directory(self) -> str:
        """The directory of the worktree, from the repository's top level, or absolute."""
        return self.worktree_dir or f".architect-parallel-{self.worker_id}"

    @property
    def branch(self) -> str:
        """The worker's branch, without `refs/heads/`."""
        return self.branch_name or f"architect/parallel-{self.worker_id}"

    @property
    def is_named(self) -> bool:
        """Whether templates gave it a name."""
        return self.worktree_dir is not None or self.branch_name is not None

    def collides(self, other: "WorkerSpec") -> bool:
        """Check whether it and another worker cannot both have what they are named after."""
        return self.branch == other.branch or self.directory == other.directory
