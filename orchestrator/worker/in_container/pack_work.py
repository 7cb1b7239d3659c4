"""Pack the files that a worker wrote, INSIDE a helper container, after the worker has ended.

The container's Python receives this module and those that it imports as one text (see
`orchestrator.worker.bundle`), so all of them import only the standard library and each other. They
run as the worker's own user, without network, on files that may be hostile; the host checks all
output again. The worker's git configuration is never read: git uses a directory that the host
created.

Writes to the output directory: `pack` (a thin pack base..tip), `tip` (an object id), `notes` (JSON:
what was left out, and why), patches of submodules, the content of git-lfs, and, if the worker left
commits that the tip does not reach, `kept` and `kept.pack` (see `kept_commits`).
"""

import errno
import json
import os

from orchestrator.worker.in_container.branch_tip import BranchTip, History
from orchestrator.worker.in_container.commit_files import FilesCommitter
from orchestrator.worker.in_container.commit_graph import CommitGraph
from orchestrator.worker.in_container.host_git import HostGit, Places, write_pack
from orchestrator.worker.in_container.kept_commits import KeptCommits
from orchestrator.worker.in_container.new_commits import carry_over
from orchestrator.worker.in_container.notes import Notes, few_notes, last_line
from orchestrator.worker.in_container.object_store import tidy_store
from orchestrator.worker.in_container.safe_files import write
from orchestrator.worker.in_container.store_refs import StoreRefs
from orchestrator.worker.in_container.submodules import Submodules
from orchestrator.worker.in_container.work_tree import WorkTree, made_at


class Harvest:
    """A worker's worktree and git directory, as they are mounted in this container."""

    def __init__(self, places: Places, base: str) -> None:
        self._base = base
        self._git = HostGit(places)
        self._notes = Notes(places.workspace)
        self._submodules = self._git.given("submodules.json")
        self._tree = WorkTree(places.workspace, self._notes, self._submodules)
        self._graph = CommitGraph(self._git, self._notes)
        self._kept = KeptCommits(self._git, self._notes, self._graph, base)
        self._committer = FilesCommitter(self._git, self._notes, self._tree, self._kept)

    def tidy(self, written: str) -> None:
        """Make the worktree and the git directory safe and readable for git.

        Args:
            written: Directory with the files that the worker wrote: the overlay's upper layer, or
                the whole worktree if it is no overlay.
        """
        places = self._git.places
        whole = written == places.workspace
        since = made_at(os.path.join(places.git_dir, "made")) if whole else -1
        self._tree.tidy(written, since=since)
        tidy_store(places.store)

    def write_submodules(self) -> None:
        """Write a patch of each submodule that the worker changed."""
        submodules = Submodules(self._git, self._notes, self._tree, self._graph)
        submodules.write_patches(self._submodules)

    def commit_onto(self, onto: str, message: str) -> str:
        """Commit only the worker's files, on top of a commit, and return the new commit."""
        return self._committer.commit_accepted(self._base, onto, message)

    def commit_all(self, branch: str, message: str) -> str:
        """Commit the files; return the branch's last commit, and write all others to `kept`."""
        refs = StoreRefs(self._git.places.store)
        history = History(self._git, self._notes, self._submodules, self._base)
        left = history.branch_tip(refs, branch)
        self._committer.note_copies(self._base, left.tip)
        tip = self._commit_uncommitted(left, message)
        try:
            self._kept.keep_others(refs, left.tip, without=left.replaced)
        except (OSError, RuntimeError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise
            said = last_line(str(error))
            self._notes.warn(f"not all of the worker's git directory could be read: {said}")
        self._kept.write()
        return tip

    def _commit_uncommitted(self, left: BranchTip, message: str) -> str:
        """Commit the files, on the branch or else aside; return the branch's last commit."""
        at, made = self._commit_files(left.checked_out, message)
        if at == left.tip:
            return made
        if made == at:
            return left.tip
        carried = carry_over(self._git, at=at, made=made, tip=left.tip, message=message)
        if carried is None:
            self._kept.keep_commit("uncommitted", made, at)
        return carried or left.tip

    def _commit_files(self, at: str, message: str) -> tuple[str, str]:
        """Commit the files on `at`, or on the base if git fails; return parent and new commit."""
        try:
            return at, self._committer.commit(self._base, at, message)
        except RuntimeError as error:
            # Git cannot check out this commit; the files are kept without it.
            said = last_line(str(error))
            self._notes.warn(f"git cannot commit on top of the worker's last commit: {said}")
            return self._base, self._committer.commit(self._base, self._base, message)

    def finish(self, tip: str) -> None:
        """Write the rest of the output for the host; the file `tip` is last and marks the end."""
        out = self._git.places.out
        write_pack(self._git, "pack", tip=tip, base=self._base)
        write(os.path.join(out, "notes"), json.dumps(few_notes(self._notes.texts)))
        write(os.path.join(out, "tip"), tip)


def main(*arguments: str) -> None:
    """Clean up the worktree, commit the files, and pack the commits.

    With a commit as the last argument, only the files are committed, on top of that commit.
    """
    written, base, branch, message, *onto = arguments[len(Places._fields) :]
    harvest = Harvest(Places(*arguments[: len(Places._fields)]), base)
    harvest.tidy(written)
    harvest.write_submodules()
    tip = harvest.commit_onto(onto[0], message) if onto else harvest.commit_all(branch, message)
    harvest.finish(tip)
