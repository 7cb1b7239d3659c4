"""The labels by which another process finds the engine objects of a run."""

from orchestrator.engine import labels as label
from orchestrator.git.repository import Repository
from orchestrator.state.run_directory import RunDirectory


def run_labels(repository: Repository, directory: RunDirectory, *, role: str) -> dict[str, str]:
    """Return the labels of a container or network that belongs to a run."""
    return {
        label.MANAGED: "true",
        label.RUN: directory.run_id,
        label.REPOSITORY: str(repository.common_dir),
        label.ROLE: role,
    }
