"""Store the commits that a worker left outside of its branch, and content that is only staged.

A worker may leave commits on other branches, under tags, in stashes, on a detached HEAD, or in no
ref at all. It may also leave staged content, or an unfinished rebase, bisect, merge or cherry-pick.
Each of these gets a name and is packed, so that the host can check it and keep it under a ref.
"""

import json
import os

from orchestrator.worker.in_container.commit_graph import CommitGraph
from orchestrator.worker.in_container.host_git import HostGit, write_pack
from orchestrator.worker.in_container.new_commits import commit_entries
from orchestrator.worker.in_container.notes import Notes
from orchestrator.worker.in_container.ref_targets import MOST_REFS, RefTargets
from orchestrator.worker.in_container.safe_files import write
from orchestrator.worker.in_container.store_refs import StoreRefs
from orchestrator.worker.in_container.whole_histories import WholeHistories
from orchestrator.worker.in_container.worker_index import LARGEST_BLOB, WorkerIndex

MOST_PARENTS = 1000
"""Maximum number of parents of the commit `rest`, which keeps the commits beyond `MOST_REFS`."""
PART_WAY = ("HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD")
"""Files in which git records the commits of unfinished operations."""


class KeptCommits:
    """Collects commits that are kept in addition to the worker's branch, each with a name."""

    def __init__(self, git: HostGit, notes: Notes, graph: CommitGraph, base: str) -> None:
        """Start without any commit."""
        self._git = git
        self._notes = notes
        self._graph = graph
        self._base = base
        self._kept: dict[str, str] = {}

    def keep_commit(self, name: str, commit: str, parent: str) -> None:
        """Record, under a name, a commit that was created in this container."""
        self._kept[name] = commit
        self._graph.parents[commit] = (parent,)

    def keep_index(self, index: WorkerIndex, at: str, made: str) -> None:
        """Record sides of conflicts, and staged content that neither commit `at` nor `made` has."""
        self._keep_staged(index, at, made)
        sides = index.unmerged()
        if sides:
            said = "architect: the sides of a conflict: 1 common, 2 ours, 3 theirs"
            commit = commit_entries(self._git, sides, at, said, alone=True)
            self.keep_commit("conflict", commit, at)

    def _keep_staged(self, index: WorkerIndex, at: str, made: str) -> None:
        staged = index.staged(at)
        for path in index.too_large[:MOST_REFS]:
            said = f"staged content over {LARGEST_BLOB >> 20} MiB was left out"
            self._notes.warn(f"{said}: {os.fsdecode(path)}")
        differing = index.staged(made)
        only = {path: one for path, one in staged.items() if differing.get(path) == one}
        if only:
            said = "architect: staged content that differs from the files"
            self.keep_commit("index", commit_entries(self._git, only, at, said), at)

    def keep_others(self, refs: StoreRefs, tip: str, *, without: str | None) -> None:
        """Find and name the worker's commits that neither `tip` nor `without` contains.

        `tip` is the last of the worker's own commits on the branch; `without` is a commit whose
        history was deliberately replaced by one commit.
        """
        graph = self._graph
        graph.read()
        reached = graph.reached([tip, *([without] if without else [])])
        named = RefTargets(self._git, self._notes, graph, self._base).commits(refs, without=reached)
        rest = graph.parents.keys() - reached
        rest -= graph.reached([*named.values(), *self._kept.values()])
        heads = rest - {parent for commit in rest for parent in graph.parents[commit]}
        labels = {refs.resolve(name): name for name in reversed(PART_WAY)}
        for commit in sorted(heads):
            named.setdefault(labels.get(commit) or f"unreachable/{commit[:12]}", commit)
        whole = WholeHistories(self._git, self._notes, graph, self._base).of(named)
        self._kept = {**self._few(whole), **self._kept}

    def _few(self, named: dict[str, str]) -> dict[str, str]:
        """Return a limited number of named commits; one more commit has the others as parents."""
        if len(named) <= MOST_REFS:
            return named
        names = list(named)
        few, many = names[: MOST_REFS - 1], names[MOST_REFS - 1 :]
        if len(many) > MOST_PARENTS:
            left = len(many) - MOST_PARENTS
            self._notes.warn(f"{left} of the worker's commits without a ref were left out")
        said = "architect: further commits of the worker, each a parent of this one"
        rest = self._joined([named[name] for name in many[:MOST_PARENTS]], said)
        return {**{name: named[name] for name in few}, "rest": rest}

    def _joined(self, commits: list[str], message: str) -> str:
        """Create a commit that has all given commits as parents and the same files as the base."""
        tree = self._git.text("rev-parse", f"{self._base}^{{tree}}")
        parents = [word for commit in commits for word in ("-p", commit)]
        return self._git.text("commit-tree", tree, *parents, stdin=message.encode())

    def write(self) -> None:
        """Write the file `kept` with names and commits, and `kept.pack` with their objects.

        The pack contains one more commit, with all kept commits as parents, which the host checks.
        """
        if not self._kept:
            return
        said = "architect: all that is kept of a worker besides its branch"
        bundle = self._joined([self._base, *self._kept.values()], said)
        write_pack(self._git, "kept.pack", tip=bundle, base=self._base)
        kept = {"bundle": bundle, "refs": list(self._kept.items())}
        write(os.path.join(self._git.places.out, "kept"), json.dumps(kept))
