"""The submodules of one worker: their files, private git directories and patches."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.files.safe_open import NotRegularError, open_regular
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.checkouts.submodules import FOLDER, RECORD, Submodule
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.defaults import SIZE_AND_TIME
from orchestrator.repository.git_directory import make_bare

PATCH = "submodule-{}.patch"
"""Name of the file with a worker's changes in a submodule, as a patch."""
_MOST_BYTES = 256 * 1024**2
"""Maximum size in bytes of a patch that is kept."""


def lay_out(
    submodules: Iterable[Submodule], tree: Path, scratch: Path, *, index: Git | None
) -> tuple[Submodule, ...]:
    """Write the files of submodules into a tree that the host created.

    Args:
        submodules: Submodules of the base.
        tree: The tree; it has a directory at the path of each submodule.
        scratch: Directory for the submodules' index files, each named by its submodule's number.
        index: Git with the index that says which submodules still exist; None: all do.

    Returns:
        The submodules that were written.
    """
    written: dict[str, Submodule] = {}
    scratch.mkdir(exist_ok=True)
    for submodule in submodules:
        place = tree / submodule.path
        # A sparse checkout has no such directory, and a link in the path would lead elsewhere.
        if place.resolve() != tree.resolve() / submodule.path or not place.is_dir():
            continue
        is_inner = any(submodule.path.startswith(f"{path}/") for path in written)
        if index is not None and not is_inner and not _is_still_there(index, submodule):
            continue
        git = _git(submodule, place, scratch)
        git.run("read-tree", submodule.commit)
        git.run("checkout-index", "--all", "--force", "--quiet")
        written[submodule.path] = submodule
    return tuple(written.values())


def _is_still_there(index: Git, submodule: Submodule) -> bool:
    wanted = f"160000 {submodule.commit} 0\t".encode() + os.fsencode(submodule.path) + b"\0"
    literal = f":(top,literal){submodule.path}"
    return index.run("ls-files", "-s", "-z", "--", literal) == wanted


def _git(submodule: Submodule, place: Path, scratch: Path) -> Git:
    index = scratch / str(submodule.number)
    return Git(submodule.git_dir, work_tree=place, index=index, config=SIZE_AND_TIME)


def refresh(submodules: Iterable[Submodule], tree: Path, scratch: Path) -> None:
    """Refresh the submodules' index files; called after the last file was written."""
    for submodule in submodules:
        _git(submodule, tree / submodule.path, scratch).succeeds("update-index", "-q", "--refresh")


@dataclass(frozen=True, kw_only=True)
class SubmoduleGitDir:
    """Settings and container paths that the git directories of all submodules have in common."""

    object_format: str
    settings: str
    """Text of the git configuration that all submodules have in common."""
    workspace: str
    """Path of the worktree in the container."""
    objects: str
    """Path of the base commit's git objects in the container."""


def make_git_dirs(
    submodules: Iterable[Submodule],
    inside: SubmoduleGitDir,
    *,
    scratch: Path,
    store: Path,
    harvest: Path,
) -> None:
    """Create two git directories for each submodule: for the worker, and to pack its changes."""
    for submodule in submodules:
        tree = f"\tworktree = {_quoted(f'{inside.workspace}/{submodule.path}')}\n"
        private = store / "modules" / str(submodule.number)
        active = "[submodule]\n\tactive = .\n"
        _make_git_dir(private, submodule, inside, f"[core]\n\tbare = false\n{tree}{active}")
        alternates = private / "objects" / "info" / "alternates"
        alternates.write_text(f"{inside.objects}/{FOLDER}/{submodule.number}\n")
        ours = harvest / FOLDER / str(submodule.number)
        _make_git_dir(ours, submodule, inside, "[core]\n\tbare = false\n")
        for git_dir in (private, ours):
            shutil.copyfile(scratch / str(submodule.number), git_dir / "index")


def _make_git_dir(
    git_dir: Path, submodule: Submodule, inside: SubmoduleGitDir, config: str
) -> None:
    make_bare(git_dir, object_format=inside.object_format)
    (git_dir / "HEAD").write_text(f"{submodule.commit}\n")
    with (git_dir / "config").open("a") as file:
        file.write(config + inside.settings)
    (git_dir / "info").mkdir()
    (git_dir / "info" / "exclude").write_text(".git-of-a-nested-repository*\n")
    if submodule.shallow:
        (git_dir / "shallow").write_text("".join(f"{commit}\n" for commit in submodule.shallow))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def files_of(submodules: Iterable[Submodule], tree: Path) -> Iterator[str]:
    """Yield the paths of submodules' files in a tree that the host created."""
    for submodule in submodules:
        for folder, _, names in os.walk(tree / submodule.path):
            inside = os.path.relpath(folder, tree)
            yield from (f"{inside}/{name}" for name in names)


def point_to(submodules: Iterable[Submodule], tree: Path, store: str) -> None:
    """Write the `.git` file of every submodule that the worker sees.

    Args:
        submodules: The submodules that were written into the tree.
        tree: The worker's own tree, or the upper layer over it.
        store: Path of the worker's store in the container.
    """
    for submodule in submodules:
        place = tree / submodule.path
        place.mkdir(parents=True, exist_ok=True)
        (place / ".git").write_text(f"gitdir: {store}/modules/{submodule.number}\n")


def write_submodules(submodules: Iterable[Submodule], *directories: Path) -> None:
    """Write each submodule's number and commit, by path, to a file in each of `directories`."""
    text = json.dumps(
        {submodule.path: [submodule.number, submodule.commit] for submodule in submodules}
    )
    for directory in directories:
        (directory / RECORD).write_text(text)


def keep_patches(root: Path, out: Path) -> tuple[str, ...]:
    """Store patches of a worker's changes in submodules; return notes with the patches' paths.

    A branch cannot contain such changes.

    Raises:
        OSError: The disk is full.
    """
    try:
        given = json.loads((root / RECORD).read_text())
    except FileNotFoundError:
        return ()
    return tuple(
        note
        for path, (number, _) in given.items()
        if (note := _keep_patch(path, out / PATCH.format(number), root / PATCH.format(number)))
    )


def _keep_patch(path: str, made: Path, kept: Path) -> str | None:
    """Copy a patch file, unless it is malformed or too large; a worker wrote it."""
    note = f"changes in the submodule {one_line(path)} are on no branch "
    try:
        file = open_regular(made)
    except NotRegularError:
        return note + "and too large to be kept"
    except OSError:
        return None
    with file:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:
            return note + "and too large to be kept"
        with kept.open("wb") as copy:
            shutil.copyfileobj(file, copy)
    return note + f"but kept in {kept}"
