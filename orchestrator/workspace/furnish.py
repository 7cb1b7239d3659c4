"""What a worktree has beside its commit's files: copies, submodules, content of git-lfs."""

import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from orchestrator.git.command import Git
from orchestrator.git.lfs import NO_CONTENT, Content, Pointer, is_written, tell_index, write_content
from orchestrator.git.lfs import write_record as write_pointers
from orchestrator.git.repository import Repository
from orchestrator.git.submodules import Submodule
from orchestrator.git.worktree import Worktree
from orchestrator.workspace.copy_untracked import copy_in, rules, write_record
from orchestrator.workspace.submodules import (
    SubmoduleGitDir,
    files_of,
    lay_out,
    make_git_dirs,
    point_to,
    refresh,
    write_submodules,
)
from orchestrator.workspace.untracked import NO_COPIES, Copies


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What a worker is to have."""

    copies: Copies = NO_COPIES
    """Untracked files of the user's checkout."""
    added: frozenset[str] = frozenset()
    """Paths of files that are written for it, and are no more to be committed than copies are."""
    submodules: tuple[Submodule, ...] = ()
    """Those of the base that are there."""
    content: Content = NO_CONTENT
    """What the base has of git-lfs."""
    shown: bool = True
    """Whether the worktree that the user sees gets it too."""


NO_EXTRAS = Extras()


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where it goes."""

    worktree: Worktree
    """What the user sees."""
    root: Path
    """The worker's state directory."""
    git: Path
    harvest: Path
    """Git directories: the worker's, and the one that its work is harvested with."""
    tree: Path
    """What the worker sees: the worktree, or a checkout of its own."""
    index: Path
    """That tree's."""
    over: Path
    """Where what the worker sees otherwise than the user is written."""


class WorktreeFiller:
    """Furnishes one worker's tree: first all files, then what indexes and records say of them."""

    def __init__(self, repository: Repository, site: Target, extras: Extras) -> None:
        self._repository = repository
        self._site = site
        self._extras = extras
        self._scratch = site.root / "submodules"
        self._copied = extras.added
        self._inner: tuple[Submodule, ...] = ()

    @cached_property
    def _trees(self) -> dict[Path, Path]:
        """Trees, each with its index; where the worker sees the worktree there is one."""
        site = self._site
        own = {site.tree: site.index}
        if not self._extras.shown:
            return own
        return {site.worktree.path: site.worktree.git_dir / "index", **own}

    @property
    def _index(self) -> Git:
        site = self._site
        return Git(site.worktree.git_dir, work_tree=site.tree, index=site.index)

    def put(self, *, at_base: bool, store: str) -> None:
        """Write the files. What is there already is left alone.

        Args:
            at_base: The tree is that of the run's base.
            store: Where the container has the worker's git directory.
        """
        if self._extras.copies.files:
            self._copy()
        if self._extras.submodules:
            self._put_submodules(store, at_base=at_base)
        for tree in self._trees if self._extras.content.pointers else ():
            write_content(self._repository, self._extras.content.pointers, tree)

    def tell(self, inside: SubmoduleGitDir) -> None:
        """Tell the indexes, the harvest and the clean-up of it, when no file changes any more."""
        site = self._site
        seen = site.worktree.path if self._extras.shown else site.tree
        if self._copied:
            write_record(self._copied, seen, site.harvest)
        ours = {*self._copied, *files_of(self._inner, seen)}
        if ours:
            write_record(ours, seen, site.root)
        if self._extras.content.is_used:
            self._tell_of_content()
        if self._inner:
            refresh(self._inner, site.tree, self._scratch)
            make_git_dirs(
                self._inner, inside, scratch=self._scratch, store=site.git, harvest=site.harvest
            )
            write_submodules(self._inner, site.root, site.harvest)
            shutil.rmtree(self._scratch)

    @cached_property
    def _tracked(self) -> frozenset[str]:
        return frozenset(os.fsdecode(self._index.run("ls-files", "-z")).split("\0"))

    def _copy(self) -> None:
        copies, top = self._extras.copies, self._repository.top
        for tree in self._trees:
            self._copied |= copy_in(copies.files, top, tree, tracked=lambda: self._tracked)
        lines = "".join(f"{rule}\n" for rule in rules(self._copied, copies.ignored))
        for git_dir in (self._site.git, self._site.harvest):
            with (git_dir / "info" / "exclude").open("a", errors="surrogateescape") as file:
                file.write(lines)

    def _put_submodules(self, store: str, *, at_base: bool) -> None:
        index = None if at_base else self._index
        found = self._extras.submodules
        for tree in self._trees:
            found = lay_out(found, tree, self._scratch, index=index)
        point_to(found, self._site.over, store)
        self._inner = found

    def _tell_of_content(self) -> None:
        there: dict[str, Pointer] = {}
        for tree, index in self._trees.items():
            pointers = self._extras.content.pointers
            written = {one.path: one for one in pointers if is_written(one, tree)}
            there |= written
            if written:
                scratch = self._site.root / "lfs"
                tell_index(self._repository, written, tree, index=index, scratch=scratch)
        write_pointers(there.values(), self._site.root, self._site.harvest)
