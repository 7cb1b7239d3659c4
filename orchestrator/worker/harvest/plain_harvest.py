"""Commit a few ordinary files of a worker without a container, which is faster.

The host copies the bytes of regular files into a commit. No program interprets them, and git reads
nothing else that the worker wrote. The resulting pack is checked like one from a container.
Anything else that a worker did is left to a container: a commit, a link, a deletion, a name that
git treats specially, or a converted or ignored file.
"""

from contextlib import suppress

from orchestrator.base.errors import OrchestratorError
from orchestrator.repository.commits.plain_commit import (
    PlainCommit,
    PlainFiles,
    commit_plainly,
    takes_as_they_are,
)
from orchestrator.repository.git.command import Git
from orchestrator.repository.repository import is_reserved
from orchestrator.worker.steps.harvest_request import HarvestRequest
from orchestrator.worker.workspace.mounts import Workspace
from orchestrator.worker.workspace.plain_files import read_plain_files
from orchestrator.worker.workspace.store_state import is_store_as_created


def pack_plainly(request: HarvestRequest) -> bool:
    """Commit and pack a worker's files if they are few and ordinary; return whether that was done.

    In a resumed run, nothing is done: a container that the interrupted process started may still
    be packing.
    """
    workspace = request.workspace
    plain = None if request.resumed else _plain_files(workspace)
    if plain is None:
        return False
    excluded = {"core.excludesFile": str(workspace.store.harvest / "info" / "exclude")}
    worktree = workspace.worktree
    rules = Git(worktree.git_dir, work_tree=worktree.path, config=excluded)
    reserved = request.repository.worktree_names()
    if any(is_reserved(file.path, reserved) for file in plain.files):
        return False
    commit = PlainCommit(
        base=request.base,
        start=workspace.start,
        objects=workspace.objects,
        message=request.message,
        plain=plain,
    )
    store = workspace.store
    # The container finds out what the problem is, and reports it.
    with suppress(OrchestratorError):
        if takes_as_they_are(request.repository, rules, [file.path for file in plain.files]):
            tip = commit_plainly(request.repository, commit, store.plain, store.out / "pack")
            if tip is not None:
                (store.out / "tip").write_text(tip)
                return True
    return False


def _plain_files(workspace: Workspace) -> PlainFiles | None:
    """Return the files that the worker wrote; None unless they are few and ordinary."""
    if workspace.mode == "bind" or workspace.read_only or workspace.confined_to:
        return None
    # protection: plain-store-must-be-unchanged
    if not is_store_as_created(workspace.store, workspace.worktree.git_dir / "index"):
        return None
    return read_plain_files(workspace.store.upper, workspace.worktree.path)
