"""A repository with branches of workers, without a run, and what must not change in it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.base.results import Status
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.review.landing.conflict_matrix import Conflicts, find_conflicts
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.review.landing.merged import Merged
from tests.support.merges import WHEN, Content, World
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


def merge(world: World, *branches: Branch, **wish: Any) -> Merged:
    """Merge branches as `orchestrator merge` does; the workers are named."""
    run = RunBranches("run", WHEN, False, branches)
    asked = {key: wish.pop(key) for key in MergeRequest.__annotations__ if key in wish}
    request = MergeRequest(**asked)
    return merge_branches(Repository(world.repo), run, Wish(request=request, named=True, **wish))


def untouched(world: World) -> tuple[object, ...]:
    """Return what a refused merge must not change: refs, reflogs, stash, index and files."""
    repo = world.repo
    # Without the option, `git status` writes the index.
    status = git(repo, "--no-optional-locks", "status", "--porcelain")
    refs = git(repo, "for-each-ref")
    files = {
        name: what
        for name, what in snapshot_of(repo).items()
        if not name.startswith((".git/orchestrator/", ".git/objects/"))
    }
    return files, refs, status
