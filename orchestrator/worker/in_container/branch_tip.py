"""Find the last commit of a worker for its branch, and the commit that its files belong to."""

import re
from collections.abc import Collection
from typing import NamedTuple

from orchestrator.worker.in_container.host_git import HostGit
from orchestrator.worker.in_container.notes import Notes
from orchestrator.worker.in_container.store_refs import StoreRefs


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
        if own in on_base and head and self._is_ancestor(head, str(own)):
            tip = str(own)
        if self._moves_submodules(tip):
            return BranchTip(base, base, replaced=tip)
        return BranchTip(tip, head if head and self._is_whole(head) else tip)

    def _is_ancestor(self, one: str, other: str) -> bool:
        return self._git.run("merge-base", "--is-ancestor", one, other).returncode == 0

    def _descends(self, commit: str) -> bool:
        if not self._is_whole(commit):
            return False
        return self._git.text_or_empty("merge-base", self._base, commit) == self._base

    def _is_whole(self, commit: str) -> bool:
        """Return whether an object is a commit, and all objects that the commit needs exist."""
        if self._git.text_or_empty("cat-file", "-t", commit) != "commit":
            return False
        needed = ("rev-list", "--objects", "--quiet", commit, f"^{self._base}")
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
