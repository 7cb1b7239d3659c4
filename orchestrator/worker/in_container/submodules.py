"""Write patches of the changes that a worker made in submodules.

A branch cannot contain these changes, because it must not move a submodule to another commit.
"""

import os

from orchestrator.worker.in_container.commit_graph import CommitGraph
from orchestrator.worker.in_container.host_git import HostGit
from orchestrator.worker.in_container.notes import Notes
from orchestrator.worker.in_container.object_store import tidy_objects
from orchestrator.worker.in_container.work_tree import WorkTree


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
        inside = (one for one in self._tree.left_out if one.startswith(f"{path}/"))
        large = (f":(exclude,top,literal){os.path.relpath(one, path)}" for one in inside)
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
