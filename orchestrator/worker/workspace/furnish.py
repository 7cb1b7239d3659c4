"""Add files to a new worktree that are not in its commit: copies, submodules, LFS content."""

import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.checkouts.lfs import (
    NO_CONTENT,
    Content,
    Pointer,
    is_written,
    tell_index,
    write_content,
)
from orchestrator.repository.checkouts.lfs import write_record as write_pointers
from orchestrator.repository.checkouts.submodules import Submodule
from orchestrator.repository.git.command import Git
from orchestrator.repository.repository import Repository
from orchestrator.worker.workspace.copy_untracked import copy_in, rules, write_record
from orchestrator.worker.workspace.submodules import (
    SubmoduleGitDir,
    files_of,
    lay_out,
    make_git_dirs,
    point_to,
    refresh,
    write_submodules,
)
from orchestrator.worker.workspace.untracked import NO_COPIES, Copies


@dataclass(frozen=True, kw_only=True)
class Extras:
    """The files that a worker gets in addition to those of its commit."""

    copies: Copies = NO_COPIES
    """Untracked files to copy from the user's checkout."""
    added: frozenset[str] = frozenset()
    """Paths of generated files in the worker's tree. Like the copies of untracked files, they must
    not be committed."""
    submodules: tuple[Submodule, ...] = ()
    """Submodules of the base commit whose objects are on this machine."""
    content: Content = NO_CONTENT
    """LFS content of the base commit."""
    shown: bool = True
    """Whether the worktree that the user sees gets the additional files too."""

    @property
    def are_none(self) -> bool:
        """Return whether a worktree gets no files besides those of the commit."""
        return not (self.copies.files or self.submodules or self.content.pointers)


NO_EXTRAS = Extras()


@dataclass(frozen=True, kw_only=True)
class Target:
    """The directories into which a worker's additional files are copied before it starts."""

    worktree: Worktree
    """The worktree that the user sees."""
    root: Path
    """The worker's state directory."""
    git: Path
    harvest: Path
    """Git directory with which the worker's commits are packed; the worker has its own in `git`."""
    tree: Path
    """The tree that the worker sees: the worktree, or a checkout of its own."""
    index: Path
    """Index file of the tree that the worker sees."""
    over: Path
    """Directory for files that the worker must see, but not the user."""


class WorktreeFiller:
    """Adds files to the trees of one worker: first the files, then the updates of index files."""

    def __init__(self, repository: Repository, site: Target, extras: Extras) -> None:
        self._repository = repository
        self._site = site
        self._extras = extras
        self._scratch = site.root / "submodules"
        self._copied = extras.added
        self._inner: tuple[Submodule, ...] = ()

    @cached_property
    def _trees(self) -> dict[Path, Path]:
        """Return the directory trees that get additional files, each with its index file.

        There are two trees if the user's worktree gets the files in addition to the worker's own.
        """
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
        """Write the additional files. Files that exist are left as they are.

        Args:
            at_base: Whether the tree is that of the run's base.
            store: Path of the worker's git directory in the container.
        """
        site, copies, found = self._site, self._extras.copies, self._extras.submodules
        for tree in self._trees if copies.files else ():
            top = self._repository.top
            self._copied |= copy_in(copies.files, top, tree, tracked=lambda: self._tracked)
        lines = "".join(f"{rule}\n" for rule in rules(self._copied, copies.ignored))
        for git_dir in (site.git, site.harvest) if copies.files else ():
            with (git_dir / "info" / "exclude").open("a", errors="surrogateescape") as file:
                file.write(lines)
        if found:
            index = None if at_base else self._index
            for tree in self._trees:
                found = lay_out(found, tree, self._scratch, index=index)
            point_to(found, site.over, store)
            self._inner = found
        for tree in self._trees if self._extras.content.pointers else ():
            write_content(self._repository, self._extras.content.pointers, tree)

    def tell(self, inside: SubmoduleGitDir) -> None:
        """Record the additional files in index files and lists, after the last was written."""
        site = self._site
        seen = site.worktree.path if self._extras.shown else site.tree
        if self._copied:
            write_record(self._copied, seen, site.harvest)
        ours = {*self._copied, *files_of(self._inner, seen)}
        if ours:
            write_record(ours, seen, site.root)
        if self._extras.content.is_used:
            there: dict[str, Pointer] = {}
            pointers = self._extras.content.pointers
            for tree, index in self._trees.items():
                written = {
                    pointer.path: pointer for pointer in pointers if is_written(pointer, tree)
                }
                there |= written
                if written:
                    scratch = site.root / "lfs"
                    tell_index(self._repository, written, tree, index=index, scratch=scratch)
            write_pointers(there.values(), site.root, site.harvest)
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
