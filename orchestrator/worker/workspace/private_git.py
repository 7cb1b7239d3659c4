"""Create a worker's private git directory (its store), and the host's files beside it.

The host never uses the store as a repository, because the worker owns it. A worker's state
directory is outside every work tree and contains:

    git/       the store: bare format, mounted at STORE, written by the worker
    pointer    mounted read-only over the worktree's `.git`: `gitdir: STORE`
    upper/     files that the worker wrote: the overlay's upper layer (mode overlay)
    overlay/   the overlay's own work directory (mode overlay)
    copy/      the worker's own checkout (mode bind)
    harvest/   git directory for the harvest, created by the host, invisible to the worker
    copied.json  the files that were copied into the tree, if any
    out/       results of the harvest: pack, tip, notes
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from orchestrator.base.files.change_owner import change_owners
from orchestrator.base.threads import meanwhile
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.defaults import SIZE_AND_TIME
from orchestrator.repository.git_directory import make_bare
from orchestrator.repository.objects.object_packs import pack_commit, pack_range
from orchestrator.repository.objects.shared_packs import pack_base
from orchestrator.repository.repository import Repository
from orchestrator.repository.settings import is_partial, is_true
from orchestrator.state.worker.worker_directory import Store
from orchestrator.worker.workspace.copy_untracked import rules
from orchestrator.worker.workspace.file_times import settle
from orchestrator.worker.workspace.furnish import NO_EXTRAS, Extras, Target, WorktreeFiller
from orchestrator.worker.workspace.layout import OBJECTS, STORE, WORKSPACE
from orchestrator.worker.workspace.store_state import note_earlier
from orchestrator.worker.workspace.submodules import SubmoduleGitDir

# Settings that make line endings and file modes mean the same in the container. None of them names
# a program.
_CARRIED = (
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
)


def base_objects(
    repository: Repository, base: str, directory: Path, *, history: Literal["full", "shallow"]
) -> frozenset[str]:
    """Pack the git objects that the commit `base` reaches, and no others, into a directory.

    Args:
        repository: The user's repository.
        base: The commit.
        directory: Directory to create; all workers of a run share it read-only.
        history: `shallow` packs only the commit itself and its files, as for any partial clone.

    Returns:
        The commits whose parents are not in the pack.
    """
    if is_partial(repository.git_config):
        history = "shallow"
    if history == "full":
        return pack_base(repository, base, directory)
    return pack_commit(repository.git, repository.common_dir, base, directory, history=history)


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """How a worker's private git directory is created."""

    base: str
    """The commit that the worker's first attempt starts from."""
    start: str
    """The commit that this attempt starts from: the base, or the result of an earlier attempt."""
    run_base: str
    """The commit for which the additional files were chosen."""
    shallow: frozenset[str]
    mode: Literal["overlay", "bind"]
    is_shared: bool = False
    """Whether the worktree is a shared checkout, which must not be changed."""
    owner: tuple[int, int]
    """User and group ids of the worker."""
    excluded: tuple[str, ...]
    """Patterns, as in `.gitignore`, of files that the agent program leaves behind."""
    extras: Extras = NO_EXTRAS
    """Files that the worker gets in addition to those of the commit."""


def make_store(
    repository: Repository, worktree: Worktree, root: Path, options: StoreOptions
) -> Store:
    """Create a worker's private git directory and other files, before any of its code runs."""
    store = Store(root=root)
    store.pointer.write_text(f"gitdir: {STORE}\n")
    settings = {**repository.settings(_CARRIED), **SIZE_AND_TIME}
    settings["user.name"], settings["user.email"] = repository.identity()
    _make_git_dir(repository, store.git, worktree.branch, options, settings)
    (store.git / "objects" / "info" / "alternates").write_text(f"{OBJECTS}\n")
    _make_git_dir(repository, store.harvest, worktree.branch, options, settings)
    if options.start != options.base:
        packs = store.git / "objects" / "pack"
        name = pack_range(repository.git, options.start, options.base, packs)
        note_earlier(store, name)
    store.out.mkdir()
    if options.mode == "overlay":
        store.upper.mkdir()
        store.overlay.mkdir()
    else:
        _check_out(repository, store, worktree, options.start)
    tree, index = _checkout(store, worktree, options.mode)
    furnishing = _furnishing(repository, worktree, store, options)
    furnishing.put(at_base=options.start == options.run_base, store=STORE)
    theirs = [store.upper] if options.mode == "overlay" else []
    if options.mode == "bind" or not options.extras.are_none:
        theirs.append(tree)
    if tree == worktree.path and options.is_shared:
        _give_away(theirs, worktree, options)
    else:
        with meanwhile(partial(_give_away, theirs, worktree, options)):
            settle(repository, tree, index)
    furnishing.tell(_inside(repository, settings))
    patterns = worktree.git_dir / "info" / "sparse-checkout"
    # The index of a shared checkout never changes, so the harvest copies it when it is needed.
    waits = options.is_shared and tree == worktree.path and not _is_split(worktree)
    for git_dir in (store.git, store.harvest):
        if git_dir == store.git or not waits:
            _copy_index(worktree, index, git_dir / "index")
        if _is_sparse(repository) and patterns.exists():
            shutil.copyfile(patterns, git_dir / "info" / "sparse-checkout")
    # Files newer than this file were changed by the worker, others by the host.
    (store.harvest / "made").touch()
    _give_away((store.git, store.harvest, store.out, store.pointer), worktree, options)
    return store


def _copy_index(worktree: Worktree, index: Path, copy: Path) -> None:
    """Copy a git index to a single file, even if it is split into two files."""
    shutil.copyfile(index, copy)
    if _is_split(worktree):
        git = Git(worktree.git_dir, index=copy, work_tree=worktree.path)
        git.run("update-index", "--force-write-index")


def _is_split(worktree: Worktree) -> bool:
    return any(worktree.git_dir.glob("sharedindex.*"))


# Without quotes, programs that print paths print the names of files.
# protection: no-automatic-garbage-collection-in-store
_OWN_SETTINGS = """\
[core]
\tbare = false
\tquotePath = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""


def _make_git_dir(
    repository: Repository,
    git_dir: Path,
    branch: str,
    options: StoreOptions,
    settings: Mapping[str, str],
) -> None:
    make_bare(git_dir, object_format=repository.object_format, branch=branch)
    with (git_dir / "config").open("a") as config:
        config.write(_OWN_SETTINGS)
        if options.extras.submodules:
            config.write("[submodule]\n\tactive = .\n")
        config.write(_settings_text(settings))
    reference = git_dir / "refs" / "heads" / branch
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(f"{options.start}\n")
    (git_dir / "info").mkdir(exist_ok=True)
    # As for the checkout: the attributes name no program, since no filter driver is configured.
    attributes = repository.common_dir / "info" / "attributes"
    if attributes.is_file():
        shutil.copyfile(attributes, git_dir / "info" / "attributes")
    (git_dir / "info" / "exclude").write_text(
        "".join(f"{pattern}\n" for pattern in _excluded(options))
    )
    if options.shallow:
        (git_dir / "shallow").write_text("".join(f"{c}\n" for c in sorted(options.shallow)))


def _settings_text(settings: Mapping[str, str]) -> str:
    parts = ((*key.partition("."), _quoted(value)) for key, value in settings.items())
    return "".join(f"[{section}]\n\t{name} = {value}\n" for section, _, name, value in parts)


def _furnishing(
    repository: Repository, worktree: Worktree, store: Store, options: StoreOptions
) -> WorktreeFiller:
    tree, index = _checkout(store, worktree, options.mode)
    site = Target(
        worktree=worktree,
        root=store.root,
        git=store.git,
        harvest=store.harvest,
        tree=tree,
        index=index,
        over=store.upper if options.mode == "overlay" else store.copy,
    )
    return WorktreeFiller(repository, site, options.extras)


def _inside(repository: Repository, settings: Mapping[str, str]) -> SubmoduleGitDir:
    return SubmoduleGitDir(
        object_format=repository.object_format,
        settings=_settings_text(settings),
        workspace=WORKSPACE,
        objects=OBJECTS,
    )


def _excluded(options: StoreOptions) -> Iterator[str]:
    yield from options.excluded
    yield ".git-of-a-nested-repository*"
    yield from rules(sorted(options.extras.added), ())


def _quoted(value: str) -> str:
    # protection: newlines-in-settings-are-replaced
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def _is_sparse(repository: Repository) -> bool:
    return is_true(repository.git_config.get("core.sparsecheckout", "false"))


def _check_out(repository: Repository, store: Store, worktree: Worktree, base: str) -> None:
    store.copy.mkdir()
    git = Git(
        repository.git_dir,
        work_tree=store.copy,
        index=store.root / "index",
        config=repository.comparing(),
    )
    if _is_sparse(repository):
        # The copied index knows which files a sparse checkout leaves out.
        shutil.copyfile(worktree.git_dir / "index", store.root / "index")
    else:
        git.run("read-tree", base)
    git.run("checkout-index", "--all", "--index", "--quiet")
    # Docker would create a missing mount point itself, as root.
    (store.copy / ".git").write_text("")


def _checkout(
    store: Store, worktree: Worktree, mode: Literal["overlay", "bind"]
) -> tuple[Path, Path]:
    if mode == "overlay":
        return worktree.path, worktree.git_dir / "index"
    return store.copy, store.root / "index"


def _give_away(paths: Iterable[Path], worktree: Worktree, options: StoreOptions) -> None:
    """Make the worker's user the owner of the files that it may write."""
    if options.owner[0] != os.getuid():
        change_owners(paths, options.owner, keep=worktree.path)
