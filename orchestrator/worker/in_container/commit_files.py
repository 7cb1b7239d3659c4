"""Commit the files in a worker's worktree, and what the worker staged."""

import os

from orchestrator.worker.in_container.changed_files import forget_times
from orchestrator.worker.in_container.host_git import HostGit
from orchestrator.worker.in_container.kept_commits import KeptCommits
from orchestrator.worker.in_container.lfs import Lfs
from orchestrator.worker.in_container.new_commits import commit_index, index_lines
from orchestrator.worker.in_container.notes import MOST_NOTES, Notes, last_line
from orchestrator.worker.in_container.refused_paths import refused_paths
from orchestrator.worker.in_container.safe_files import write
from orchestrator.worker.in_container.variables import reserved
from orchestrator.worker.in_container.work_tree import WorkTree
from orchestrator.worker.in_container.worker_index import WorkerIndex

_AS_THEY_ARE = "* -text -ident -working-tree-encoding\n"


class FilesCommitter:
    """Commits the files in a worker's worktree."""

    def __init__(self, git: HostGit, notes: Notes, tree: WorkTree, kept: KeptCommits) -> None:
        self._git = git
        self._notes = notes
        self._tree = tree
        self._kept = kept
        self._lfs = Lfs(git, notes, tree)
        self._copied = git.given("copied.json")
        """Untracked files of the user that the host copied into the worktree."""

    def commit(self, base: str, parent: str, message: str) -> str:
        """Commit uncommitted files on top of `parent`, and return the resulting commit.

        Raises:
            RuntimeError: Git cannot check out `parent`.
        """
        index = self._fill_index(base, parent)
        self._lfs.warn_of_lost_content()
        for path, why in self._tree.left_out.items():
            self._notes.add_path(why, path)
        made = commit_index(self._git, parent, message)
        try:
            self._kept.keep_index(index, parent, made)
        except (RuntimeError, ValueError) as error:
            said = last_line(str(error))
            self._notes.warn(f"content that was only staged could not be kept: {said}")
        return made

    def _fill_index(self, base: str, parent: str) -> WorkerIndex:
        """Put the files to commit into git's index; return a copy of the worker's own index."""
        # -m keeps the index's data of unchanged files; -i ignores that others differ from the base.
        self._git.text("read-tree", "-i", "-m", parent)
        forget_times(self._git, self._tree)
        index = WorkerIndex(self._git, self._notes)
        self._take_staged(index, parent)
        self._add_files()
        self._restore_sparse(index, parent)
        self._leave_copies(parent)
        self._lfs.put_pointers(base)
        return index

    def commit_accepted(self, base: str, onto: str, message: str) -> str:
        """Commit the files on top of a commit, without files that the host would refuse."""
        made = self.commit(base, onto, message)
        tree = self._git.text("rev-parse", f"{made}^{{tree}}")
        paths = self._git.paths("ls-tree", "-r", "-z", "--name-only", tree)
        known = set(self._git.paths("ls-tree", "-r", "-z", "--name-only", onto))
        refused = refused_paths(paths, reserved()) - known
        for path in sorted(refused)[:MOST_NOTES]:
            self._notes.add_path(
                "a file whose directory git would take for a repository was left out",
                os.fsdecode(path),
            )
        if not refused:
            return made
        self._remove_entries(refused)
        return commit_index(self._git, onto, message)

    def note_copies(self, base: str, parent: str) -> None:
        """Add a note for each untracked file, copied from the user, that the worker committed."""
        if not self._copied or parent == base:
            return
        for path in self._git.added_paths("diff-tree", "-r", base, parent):
            if path in self._copied:
                self._notes.add_path("a copied file is in the worker's own commits", path)

    def _take_staged(self, index: WorkerIndex, parent: str) -> None:
        """Add to the index the files that the worker staged, even if they are ignored.

        Their content is that of the worktree; files that are missing in the worktree are left out.
        """
        known = set(self._git.paths("ls-files", "-z"))
        left_out = {os.fsencode(path) for path in self._tree.left_out}
        modes, staged = index.modes(), index.staged(parent)
        new = modes.keys() - known - left_out
        if not new:
            return
        # A file that was added with `git add -N` has no content yet.
        empty = self._git.text("hash-object", "-w", "--stdin")
        lines = index_lines({path: staged.get(path, (modes[path], empty)) for path in new})
        form = ("update-index", "--add", "--replace", "-z", "--index-info")
        if self._git.run(*form, stdin=lines).returncode:
            self._notes.warn("ignored files that the worker added by force were left out")

    def _add_files(self) -> None:
        """Add all files of the worktree to the index, except those in `WorkTree.left_out`."""
        wanted = [".", *(f":(exclude,top,literal){path}" for path in self._tree.left_out)]
        self._add(b"\0".join(os.fsencode(item) for item in wanted))

    def _add(self, wanted: bytes, *, again: bool = True) -> None:
        # --ignore-errors: a name that git refuses must not prevent adding the others.
        done = self._git.run(
            "add", "--all", *self._sparse, "--ignore-errors", "--pathspec-from-file=-",
            "--pathspec-file-nul", stdin=wanted,
        )  # fmt: skip
        if done.returncode == 0:
            return
        said = last_line(done.stderr[-1000:].decode(errors="replace"))
        if done.returncode == 1:
            self._notes.add(f"some files could not be added: {said}")
        elif again:
            # One file whose attributes prevent its conversion would prevent adding all others.
            attributes = os.path.join(self._git.places.git_dir, "info", "attributes")
            write(attributes, _AS_THEY_ARE)
            self._notes.add(f"git added files without converting them: {said}")
            self._add(wanted, again=False)
        else:
            raise RuntimeError(f"`git add` reported: {said}")

    @property
    def _sparse(self) -> tuple[str, ...]:
        """Return the option with which git adds files outside of a sparse checkout."""
        patterns = os.path.join(self._git.places.git_dir, "info", "sparse-checkout")
        return ("--sparse",) if os.path.exists(patterns) else ()

    def _restore_sparse(self, index: WorkerIndex, parent: str) -> None:
        """Retain files that are missing only because of the worker's sparse checkout."""
        form = ("-z", "--cached", "--name-only", "--no-renames", "--diff-filter=D")
        gone = set(self._git.paths("diff-index", *form, parent))
        sparse = gone & index.not_checked_out() if gone else set()
        if sparse:
            entries = self._git.paths("ls-tree", "-r", "-z", parent)
            lines = (e + b"\0" for e in entries if e.partition(b"\t")[2] in sparse)
            self._git.text("update-index", "--add", "-z", "--index-info", stdin=b"".join(lines))

    def _leave_copies(self, parent: str) -> None:
        """Remove the user's copied files from the index, unless `parent` contains them."""
        if self._copied:
            added = self._git.added_paths("diff-index", "--cached", parent)
            self._remove_entries({os.fsencode(path) for path in added if path in self._copied})

    def _remove_entries(self, paths: set[bytes]) -> None:
        lines = b"".join(path + b"\0" for path in paths)
        self._git.text("update-index", "--force-remove", "-z", "--stdin", stdin=lines)
