"""A repository with branches of workers, without a run, and what must not change in it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from orchestrator.git.repository import Repository
from orchestrator.landing.branches import Branch
from orchestrator.landing.matrix import Conflicts, find_conflicts
from orchestrator.results import Status
from tests.support.merges import Content, World
from tests.support.repository import git


def branch(world: World, number: int, files: Mapping[str, Content], *parents: str) -> Branch:
    """Create the branch of a worker that changed these files."""
    commit = world.commit(files, *parents)
    git(world.repo, "branch", "-f", f"architect/parallel-{number}", commit)
    return Branch(
        worker_id=number,
        task=f"task {number}",
        base=world.base,
        commit=commit,
        status=Status.SUCCESS,
    )


def conflicts_of(world: World, *branches: Branch) -> Conflicts:
    """Compare branches with each other and with the commit that is checked out."""
    repository = Repository(world.repo)
    head = repository.resolve("HEAD")
    return find_conflicts(repository, branches, run_id="run", base=head)


def snapshot_of(repo: Path) -> dict[str, tuple[str, int]]:
    """Return content and modification time of everything in a repository, `.git` included.

    Git renews the time of an object that it would have written again; the time is left out.
    """
    files = (path for path in sorted(repo.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(repo)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            0 if "objects" in path.parts else path.stat().st_mtime_ns,
        )
        for path in files
    }
