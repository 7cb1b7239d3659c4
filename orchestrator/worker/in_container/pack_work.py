"""Pack the files that a worker wrote, INSIDE a helper container, after the worker has ended.

The container's Python receives this module and those that it imports as one text (see
`base.files.bundle`), so all of them import only the standard library and each other. They
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
import re
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from orchestrator.worker.in_container.commit_files import FilesCommitter
from orchestrator.worker.in_container.commit_graph import CommitGraph
from orchestrator.worker.in_container.host_git import (
    HostGit,
    Notes,
    Places,
    few_notes,
    last_line,
    write_pack,
)
from orchestrator.worker.in_container.kept_commits import KeptCommits, carry_over
from orchestrator.worker.in_container.safe_files import tidy_objects, tidy_store, write
from orchestrator.worker.in_container.store_refs import StoreRefs
from orchestrator.worker.in_container.work_tree import WorkTree, made_at


class BranchTip(NamedTuple):
    """The commit that a worker's branch gets, and the commit that its files belong to.

    They differ if HEAD left the branch, as after `git checkout --detach HEAD~1` or during a bisect.
    """

    tip: str
    """The worker's last commit for its branch."""
    checked_out: str
    """The commit that the worker's files belong to."""
    replaced: str | None = None
    """The worker's own last commit, if all its commits are replaced by a single one."""


class History:
    """The commits that a worker created since the base of its branch."""

    def __init__(self, git: HostGit, notes: Notes, submodules: Collection[str], base: str) -> None:
        self._git = git
        self._notes = notes
        self._submodules = submodules
        self._base = base

    def branch_tip(self, refs: StoreRefs, branch: str) -> BranchTip:
        """Return the last commit of the worker's branch, and of its files; the base if none."""
        base = self._base
        head, own = refs.resolve("HEAD"), refs.resolve(f"refs/heads/{branch}")
        on_base = [name for name in (head, own) if name and self._descends(name)]
        if not on_base:
            self._notes.add(
                "the worker's commits are not on top of its base: "
                "the branch gets only the worker's files"
            )
            return BranchTip(base, base)
        tip = on_base[0]
        if (
            own in on_base
            and head
            and (self._git.run("merge-base", "--is-ancestor", head, str(own)).returncode == 0)
        ):
            # protection: commits-of-branch-that-head-left-are-kept
            tip = str(own)
        if self._moves_submodules(tip):
            return BranchTip(base, base, replaced=tip)
        return BranchTip(tip, head if head and self._is_whole(head) else tip)

    def _descends(self, commit: str) -> bool:
        if not self._is_whole(commit):
            return False
        # protection: tip-in-store-must-descend-from-base
        return self._git.text_or_empty("merge-base", self._base, commit) == self._base

    def _is_whole(self, commit: str) -> bool:
        """Return whether an object is a commit, and all objects that the commit needs exist."""
        # protection: tip-in-store-must-be-commit
        if self._git.text_or_empty("cat-file", "-t", commit) != "commit":
            return False
        needed = ("rev-list", "--objects", "--quiet", commit, f"^{self._base}")
        # protection: history-must-be-complete
        return self._git.run(*needed).returncode == 0

    def _moves_submodules(self, commit: str) -> bool:
        """Return whether a commit contains a submodule's commit that only the worker has."""
        if not self._submodules or commit == self._base:
            return False
        form = ("--raw", "-m", "-z", "--no-abbrev", "--no-renames", "--format=")
        raw = self._git.run("log", *form, f"{self._base}..{commit}").stdout
        listed = self._git.run("ls-tree", "-r", "-z", self._base).stdout
        known = set(re.findall(rb"160000 commit ([0-9a-f]+)\t", listed))
        if set(re.findall(rb":[0-7]{6} 160000 [0-9a-f]+ ([0-9a-f]+) ", raw)) <= known:
            return False
        self._notes.add(
            "one of the worker's commits moved a submodule, so all its commits were replaced "
            "by a single commit, with every submodule as it was"
        )
        return True


class Submodules:
    """The submodules that the worker was given: number and commit of each, by path."""

    def __init__(self, git: HostGit, notes: Notes, tree: WorkTree, graph: CommitGraph) -> None:
        self._git = git
        self._notes = notes
        self._tree = tree
        self._graph = graph

    def write_patches(self, given: dict[str, list[int | str]]) -> None:
        """Write a patch of each changed submodule; warn of commits, which are not kept."""
        for path, (number, commit) in given.items():
            tree = os.path.join(self._tree.root, path)
            self._warn_of_commits(path, int(number))
            if os.path.realpath(tree) == tree and os.path.isdir(tree):
                self._write_patch(path, int(number), str(commit))

    def _warn_of_commits(self, path: str, number: int) -> None:
        """Warn of commits that the worker made in a submodule, including stashes."""
        store = self._git.places.store
        objects = f"{store}/modules/{number}/objects"
        if os.path.realpath(objects) != objects or not os.path.isdir(objects):
            return
        tidy_objects(store, objects)
        if self._graph.has_commits(objects):
            self._notes.warn(
                f"the worker's commits in a submodule are not kept, only the files: {path}"
            )

    def _write_patch(self, path: str, number: int, commit: str) -> None:
        places = {
            "GIT_DIR": os.path.join(self._git.places.git_dir, "submodules", str(number)),
            "GIT_WORK_TREE": os.path.join(self._tree.root, path),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{self._git.places.objects}/submodules/{number}",
        }
        inside = (left for left in self._tree.left_out if left.startswith(f"{path}/"))
        large = (f":(exclude,top,literal){os.path.relpath(left, path)}" for left in inside)
        self._git.run(
            "add", "--all", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul",
            stdin=b"\0".join(map(os.fsencode, (".", *large))), env=places,
        )  # fmt: skip
        form = ("-p", "--cached", "--binary", "--full-index", "--no-renames")
        made = self._git.write_output(
            f"submodule-{number}.patch", "diff-index", *form, commit, env=places
        )
        if not os.path.getsize(made):
            os.unlink(made)


class Harvest:
    """A worker's worktree and git directory, as they are mounted in this container."""

    def __init__(self, places: Places, base: str) -> None:
        self._base = base
        self._git = HostGit(places)
        self._notes = Notes(places.workspace)
        self._submodules = self._git.read_given("submodules.json")
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
        # protection: other-files-in-object-directory-are-removed
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
        # protection: number-of-notes-of-harvest-limited
        write(os.path.join(out, "notes"), json.dumps(few_notes(self._notes.texts)))
        write(os.path.join(out, "tip"), tip)


def clear(places: Places) -> None:
    """Remove the files of an interrupted packing."""
    stale = [os.path.join(places.out, name) for name in ("tip", "pack", "kept", "kept.pack")]
    for path in (*stale, os.path.join(places.git_dir, "index.lock")):
        with suppress(FileNotFoundError):
            os.unlink(path)


def main(*arguments: str) -> None:
    """Clean up the worktree, commit the files, and pack the commits.

    With a commit as the last argument, only the files are committed, on top of that commit.
    """
    written, base, branch, message, *onto = arguments[len(Places._fields) :]
    places = Places(*arguments[: len(Places._fields)])
    clear(places)
    harvest = Harvest(places, base)
    harvest.tidy(written)
    harvest.write_submodules()
    tip = harvest.commit_onto(onto[0], message) if onto else harvest.commit_all(branch, message)
    harvest.finish(tip)
