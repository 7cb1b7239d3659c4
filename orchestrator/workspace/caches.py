"""Downloads of package managers that workers share, and none of them can change for another.

A generation is what one `orchestrator cache warm` left, in a directory per kind; it is published
whole, by a rename, and only ever read after that. A worker writes to a layer of its own on top,
which goes with the rest of its scratch.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.values import CacheKind
from orchestrator.engine.images.project import LOCK_FILES
from orchestrator.engine.spec import BindMount, OverlayMount
from orchestrator.files.remove_tree import remove_tree
from orchestrator.git.repository import Repository
from orchestrator.state.run_directory import all_runs
from orchestrator.workspace.mounts import CACHES, Mode, Mounts
from orchestrator.workspace.private_git import change_owner

TARGET = "/caches"
_FRESH = "fresh"
"""What stands for a generation where there is none."""
_HALF = ".half"
_CHOICE = "cache"
_VARIABLES: dict[CacheKind, dict[str, str]] = {
    "pip": {"PIP_CACHE_DIR": f"{TARGET}/pip/cache"},
    "npm": {"npm_config_cache": f"{TARGET}/npm"},
    "uv": {"UV_CACHE_DIR": f"{TARGET}/uv"},
    "cargo": {"CARGO_HOME": f"{TARGET}/cargo"},
}
WHEELS = f"{TARGET}/pip/wheels"
_OFFLINE: dict[CacheKind, dict[str, str]] = {
    # What pip has cached it finds only by asking the index, so there are files to find instead.
    "pip": {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS},
    "npm": {"npm_config_offline": "true"},
    "uv": {"UV_OFFLINE": "1"},
    "cargo": {"CARGO_NET_OFFLINE": "true"},
}


@dataclass(frozen=True)
class Caches:
    """What the workers of one run find cached."""

    kinds: tuple[CacheKind, ...] = ()
    generation: Path | None = None
    """None where nothing is published, or what is made is to be."""
    warms: bool = False
    """Whether a worker that succeeds publishes what it has."""
    notices: tuple[str, ...] = ()

    def lower(self, kind: CacheKind) -> Path | None:
        """Return what is published of a kind."""
        found = None if self.generation is None else self.generation / kind
        return found if found is not None and found.is_dir() else None


NO_CACHES = Caches()


def environment(kinds: Sequence[CacheKind], *, offline: bool) -> dict[str, str]:
    """Return the variables by which package managers find their caches, and ask nobody else."""
    found: dict[str, str] = {}
    for kind in kinds:
        found |= _VARIABLES[kind]
        if offline:
            found |= _OFFLINE[kind]
    return found


def generations(repository: Repository) -> list[Path]:
    """Return what is published, the newest first."""
    # Two runs of one second are not told apart by their names.
    found = (one for one in _place(repository).glob("[!.]*") if one.is_dir())
    return sorted(found, key=lambda one: one.stat().st_mtime_ns, reverse=True)


def _place(repository: Repository) -> Path:
    return repository.state_dir / CACHES


def find_caches(
    repository: Repository, base: str, kinds: tuple[CacheKind, ...], run: Path, *, warms: bool
) -> Caches:
    """Choose what a run finds cached, or find what was chosen for it before.

    Args:
        repository: The repository.
        base: What the workers start from: what was made for its lock files comes first.
        kinds: Which are wanted.
        run: The run's directory.
        warms: It is to make a generation, and starts from nothing.
    """
    if warms or not kinds:
        return Caches(kinds=kinds, warms=warms)
    chosen = run / _CHOICE
    known = _place(repository) / chosen.read_text() if chosen.exists() else None
    published = generations(repository)
    if known in published:
        return Caches(kinds=kinds, generation=known)
    key = lock_key(repository, base)
    fitting = [one for one in published if one.name.endswith(f"-{key}")]
    newest = next(iter((*fitting, *published)), None)
    if newest is not None:
        chosen.write_text(newest.name)
    found = Caches(kinds=kinds, generation=newest)
    empty = [kind for kind in kinds if found.lower(kind) is None]
    notices = []
    if empty:
        notices.append(f"nothing is cached for {', '.join(empty)}: `orchestrator cache warm`")
    if published and not fitting:
        notices.append("lock files changed since the caches were made: `orchestrator cache warm`")
    return Caches(kinds=kinds, generation=newest, notices=tuple(notices))


def lock_key(repository: Repository, commit: str) -> str:
    """Condense the lock files of a commit."""
    listing = repository.git.tree(commit)
    names = {os.fsencode(name) for name in LOCK_FILES}
    locks = [entry for entry in listing if entry.rpartition(b"\t")[2].rpartition(b"/")[2] in names]
    return hashlib.sha256(b"\0".join(locks)).hexdigest()[:8]


def ready_caches(caches: Caches, root: Path, user: tuple[int, int], mode: Mode) -> Mounts:
    """Return a worker its layers on top of what is cached; those that it has already stay.

    Args:
        caches: What its run finds.
        root: The worker's state directory.
        user: uid and gid of the worker.
        mode: How layers are made here.

    Raises:
        OSError: There is no room for them.
    """
    return tuple(_layer(caches, kind, root / CACHES, user, mode) for kind in caches.kinds)


def _layer(
    caches: Caches, kind: CacheKind, scratch: Path, user: tuple[int, int], mode: Mode
) -> BindMount | OverlayMount:
    lower, target = caches.lower(kind), f"{TARGET}/{kind}"
    if lower is None:
        place = scratch / _FRESH / kind
        _make(place, user)
        return BindMount(source=place, target=target, read_only=False)
    place = scratch / lower.parent.name / kind
    if mode == "bind":
        if not place.exists():
            _copy(lower, place, user)
        return BindMount(source=place, target=target, read_only=False)
    upper, work = place / "upper", place / "work"
    for path in (upper, work):
        _make(path, user)
    return OverlayMount(lower=lower, upper=upper, work=work, target=target)


def _make(place: Path, user: tuple[int, int]) -> None:
    if not place.exists():
        place.mkdir(parents=True)
        os.chown(place, *user)


def _copy(lower: Path, place: Path, user: tuple[int, int]) -> None:
    half = place.with_name(place.name + _HALF)
    remove_tree(half)
    shutil.copytree(lower, half, symlinks=True)
    change_owner(half, user)
    half.rename(place)


def publish(caches: Caches, repository: Repository, base: str, run_id: str, root: Path) -> None:
    """Make what a worker of ours has cached a generation, unless that was done.

    Args:
        caches: What the run was to make.
        repository: The repository.
        base: What it was made for.
        run_id: The run's, of which the generation has its name.
        root: The worker's state directory.

    Raises:
        OSError: It could not be made.
    """
    made = root / CACHES / _FRESH
    place = _place(repository)
    target = place / f"{run_id}-{lock_key(repository, base)}"
    if not caches.warms or target.exists():
        return
    # Workers have users of their own and write to what lies below, as they see it. That nobody
    # else of this machine does is the work of the directory around it.
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    _open_up(made)
    made.rename(target)


def _open_up(tree: Path) -> None:
    """Let every user read and write a tree; follows no link, and leaves nothing special in it."""
    tree.chmod(0o777)
    for folder, directories, files in os.walk(tree):
        for name in (*directories, *files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                path.chmod(0o777)
            elif stat.S_ISREG(mode):
                path.chmod(0o777 if mode & stat.S_IXUSR else 0o666)
            elif not stat.S_ISLNK(mode):
                path.unlink()


def remove_generations(repository: Repository, *, keep: int = 0) -> list[Path]:
    """Remove all but the newest generations, unless a run goes on that may read them.

    Args:
        repository: The repository.
        keep: How many stay.

    Returns:
        Those that were removed.
    """
    with repository.lock():
        if any(run.is_live() for run in all_runs(repository.state_dir)):
            return []
        going = generations(repository)[keep:]
        for one in going:
            # At once: what a process left that died meanwhile is none any more.
            one.rename(one.with_name(f".{one.name}"))
        for left in _place(repository).glob(".*"):
            remove_tree(left)
        return going
