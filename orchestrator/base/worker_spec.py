"""The specification of a worker: its task, its model, and the names of branch and worktree."""

from pydantic import BaseModel, ConfigDict, Field

DEFAULT_MODEL = "default"


class WorkerSpec(BaseModel):
    """Task, model and names of one worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker_id: int
    task: str
    """The task that the user gave."""
    rendered: str | None = Field(default=None, exclude=True)
    """The task with other tasks' results inserted. It is created when the worker starts, and not
    stored.
    """
    message: str | None = Field(default=None, exclude=True)
    """The message of the worker's present turn; None in its first turn. It is not stored here."""
    model: str | None
    name: str | None = None
    """Id of the worker's task in a workflow."""
    required: bool = True
    """Whether the run fails if this worker fails."""
    worktree_dir: str | None = None
    """Path of the worktree, relative to the repository's top or absolute; null for the default."""
    branch_name: str | None = None
    """Name of the branch; null for the default."""

    @property
    def prompt(self) -> str:
        """Return the text for the agent program: the task, with other tasks' results inserted."""
        return self.task if self.rendered is None else self.rendered

    @property
    def model_name(self) -> str:
        """Return the name of the model as shown in results."""
        return self.model or DEFAULT_MODEL

    @property
    def directory(self) -> str:
        """Return the path of the worktree, relative to the repository's top or absolute."""
        return self.worktree_dir or f".architect-parallel-{self.worker_id}"

    @property
    def branch(self) -> str:
        """Return the name of the worker's branch, without `refs/heads/`."""
        return self.branch_name or f"architect/parallel-{self.worker_id}"

    @property
    def ref(self) -> str:
        """Return the full name of the worker's branch."""
        return f"refs/heads/{self.branch}"

    @property
    def is_named(self) -> bool:
        """Return whether the name of the worktree or branch comes from a template."""
        return self.worktree_dir is not None or self.branch_name is not None

    def collides(self, other: "WorkerSpec") -> bool:
        """Return whether two workers have the same branch or the same worktree."""
        return self.branch == other.branch or self.directory == other.directory
