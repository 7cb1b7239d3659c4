"""Packs of what earlier base commits reach, which later runs link instead of packing it again.

A run of a commit that descends from an earlier base only packs the difference. The directory
`packs/` in the repository's state, which only the caller may enter, contains:

    lock                    held while packs are linked, added or removed, never while git packs
    COMMIT/manifest.json    the layers of a base; written last
    COMMIT/pack-*           its packs, hard links to those of other bases and of running runs

The packs of a layer, with those of the layers before it, hold exactly what its commit reaches. So
a run that starts from any of these commits, or from a descendant, uses the layers up to it.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from orchestrator.base.errors import GitCommandError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.owner import own_place
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.safe_open import read_limited
from orchestrator.repository.git.command import Git
from orchestrator.repository.objects.object_packs import (
    cut_of,
    is_pair,
    open_to_all,
    pack_commit,
    pack_since,
    put_file,
)
from orchestrator.repository.objects.private_place import private_place
from orchestrator.repository.repository import Repository

_PLACE = "packs"
_MANIFEST = "manifest.json"
_LARGEST_MANIFEST = 1024**2
_MOST_KEPT = 3
"""Number of bases whose packs are kept."""
_MOST_LAYERS = 10
"""Number of layers from which on the newer ones are packed again, as one."""
_HALF, _GONE = ".half", ".gone"
Commit = Annotated[str, StringConstraints(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
# protection: manifest-of-shared-packs-names-no-other-files
PackFile = Annotated[str, StringConstraints(pattern=r"^pack-[0-9a-f]{40,64}\.(?:pack|idx|rev)$")]


class Layer(BaseModel):
    """The packs that a commit adds to those of the layers before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: Commit
    files: dict[PackFile, int] = Field(min_length=1)
    """Names and sizes of the files."""


class _Manifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: tuple[Layer, ...] = Field(min_length=1)
    cut: frozenset[Commit]
    """The commits whose parents the repository lacked, as in a shallow clone."""


def pack_base(repository: Repository, commit: str, directory: Path) -> frozenset[str]:
    """Create an object directory with the objects that a commit reaches, as `pack_commit` does.

    Packs of earlier bases are linked, and the result is kept for later runs.

    Args:
        repository: The repository.
        commit: The commit.
        directory: Object directory to create; all users may read it.

    Returns:
        The commits whose parents are not in the directory.
    """
    git, common_dir = repository.git, repository.common_dir
    cut = repository.shallow_commits()
    pack = directory / "pack"
    pack.mkdir(parents=True)
    try:
        known = _link(repository, commit, cut, pack)
        if known and known[-1].commit != commit:
            pack_since(git, commit, known[-1].commit, directory)
    except GitCommandError:
        # Objects of the past are missing or damaged.
        known = ()
    if known:
        open_to_all(directory)
        found = cut_of(git, common_dir, commit)
    else:
        remove_tree(directory)
        found = pack_commit(git, common_dir, commit, directory, history="full")
    is_alone = not found <= cut
    if not is_alone and (not known or known[-1].commit != commit):
        old = {name for layer in known for name in layer.files}
        new = {path.name: path.stat().st_size for path in pack.glob("*") if path.name not in old}
        layers = (*known, Layer(commit=commit, files=new))
        _keep(repository.state_dir, _Manifest(layers=layers, cut=cut), pack)
    return found


def _link(
    repository: Repository, commit: str, cut: frozenset[str], pack: Path
) -> tuple[Layer, ...]:
    """Link the packs of `commit`, or of its nearest known ancestor, into an empty directory.

    Returns:
        The layers whose packs are in the directory now; none if no ancestor is known.
    """
    if not own_place(repository.state_dir, _PLACE).exists():
        return ()
    with _lock(repository.state_dir) as place:
        # protection: packs-are-shared-only-with-equally-shallow-history
        bases = [(root, manifest.layers) for root, manifest in _bases(place) if manifest.cut == cut]
    known = {layer.commit for _, layers in bases for layer in layers}
    # Other runs do not wait while git reads the history.
    nearest = _nearest(repository.git, commit, known)
    if nearest is None:
        return ()
    with _lock(repository.state_dir):
        for root, layers in bases:
            wanted = _up_to(nearest, layers, grows=nearest != commit)
            if wanted and _link_layers(wanted, root, pack):
                os.utime(root)
                return wanted
    return ()


def _keep(state_dir: Path, manifest: _Manifest, pack: Path) -> None:
    """Keep the packs in a directory for later runs."""
    commit = manifest.layers[-1].commit
    with _lock(state_dir) as place:
        half = place / _HALF
        # protection: incomplete-shared-packs-are-not-completed
        remove_tree(half)
        half.mkdir()
        if _link_layers(manifest.layers, pack, half):
            write_atomically(half / _MANIFEST, manifest.model_dump_json())
            _remove(place / commit)
            half.rename(place / commit)
        for root in _superfluous(place):
            _remove(root)


def remove_packs(state_dir: Path) -> int:
    """Remove all kept packs of a repository; return the number of bytes that this frees.

    Raises:
        RepositoryError: The directory of the packs is not the caller's.
    """
    if not own_place(state_dir, _PLACE).exists():
        return 0
    with _lock(state_dir) as place:
        found = [file.lstat() for file in place.glob("*/*")]
        links = Counter(info.st_ino for info in found)
        own = {info.st_ino: info.st_blocks for info in found if links[info.st_ino] == info.st_nlink}
        freed = 512 * sum(own.values())
        for root in [path for path in place.iterdir() if path.name != "lock"]:
            _remove(root)
    return freed


def _lock(state_dir: Path) -> AbstractContextManager[Path]:
    place = own_place(state_dir, _PLACE)
    return private_place(place, again="packs the history of its base again")


def _bases(place: Path) -> Iterator[tuple[Path, _Manifest]]:
    """Yield the directory and the manifest of each base, the one used last first."""
    # protection: link-in-place-of-shared-packs-is-not-followed
    roots = [path for path in place.iterdir() if path.is_dir() and not path.is_symlink()]
    for root in sorted(roots, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            text = read_limited(root / _MANIFEST, most=_LARGEST_MANIFEST)
            manifest = _Manifest.model_validate_json(text)
        # protection: packs-are-shared-only-with-manifest
        except (OSError, ValidationError):
            # A run that was killed did not complete it.
            continue
        yield root, manifest


def _nearest(git: Git, commit: str, known: Collection[str]) -> str | None:
    """Return the first of the known commits that git finds in the history of a commit."""
    if commit in known or not known:
        return commit if known else None
    with git.reading("rev-list", commit) as history:
        commits = (line.decode().strip() for line in history)
        # protection: packs-are-shared-only-with-descendants-of-their-base
        return next((older for older in commits if older in known), None)


def _up_to(commit: str, layers: Sequence[Layer], *, grows: bool) -> tuple[Layer, ...]:
    """Return the layers that hold what a commit reaches; none if they are not worth using.

    With `grows`, another layer will be added.
    """
    number = next((n for n, layer in enumerate(layers, 1) if layer.commit == commit), 0)
    if not grows or number < _MOST_LAYERS:
        # protection: layers-of-later-commit-are-not-shared
        return tuple(layers[:number])
    first, *more = (sum(layer.files.values()) for layer in layers[:number])
    return () if sum(more) > first else tuple(layers[:1])


def _link_layers(layers: Sequence[Layer], source: Path, directory: Path) -> bool:
    """Link the packs of layers into a directory; return False, and link none, if one is damaged."""
    files = {name: size for layer in layers for name, size in layer.files.items()}
    checksum = len(layers[0].commit) // 2
    try:
        # An index comes before its pack.
        for name, size in sorted(files.items()):
            put_file(source / name, directory / name)
            path = directory / name
            is_whole = path.suffix != ".pack" or is_pair(path, checksum)
            # protection: sizes-of-shared-packs-are-compared
            if path.stat().st_size != size or not is_whole:
                break
        else:
            return True
    except OSError:
        pass
    for name in files:
        (directory / name).unlink(missing_ok=True)
    return False


def _superfluous(place: Path) -> Iterator[Path]:
    """Yield what is incomplete, the bases that others include, and the bases used longest ago."""
    bases = list(_bases(place))
    chains = [manifest.layers for _, manifest in bases]
    kept = [
        root
        for root, manifest in bases
        if not any(
            len(chain) > len(manifest.layers) and chain[: len(manifest.layers)] == manifest.layers
            for chain in chains
        )
    ][:_MOST_KEPT]
    yield from (path for path in place.iterdir() if path.name != "lock" and path not in kept)


def _remove(root: Path) -> None:
    """Remove the packs of a base; no run finds a part of them."""
    gone = root.with_name(_GONE)
    remove_tree(gone)
    if root.exists() and root != gone:
        root.rename(gone)
        remove_tree(gone)
