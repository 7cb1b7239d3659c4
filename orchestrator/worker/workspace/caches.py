"""Download caches of package managers, which workers share but cannot change for each other.

A generation is the result of one `orchestrator cache warm`, with a directory for each package
manager. It becomes visible by a single rename, and is never changed afterwards. A worker writes to
a layer of its own on top, which is removed with its other temporary files. A worker whose user
does not own the generation gets a copy: npm, for example, gives what it installs to the owner of
its cache, which only root can do.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.change_owner import change_owner
from orchestrator.base.files.owner import own_place
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.config.settings.values import CacheKind
from orchestrator.engine.interface.spec import BindMount, OverlayMount
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import all_runs
from orchestrator.worker.workspace.layout import CACHES, Mode, Mounts
from orchestrator.worker.workspace.worker_user import shared_user

TARGET = "/caches"
_FRESH = "fresh"
"""Name of the directory of a worker's caches that started empty, because none were stored."""
_HALF = ".half"
_CHOICE = "cache"
_VARIABLES: dict[CacheKind, dict[str, str]] = {
    "pip": {"PIP_CACHE_DIR": f"{TARGET}/pip/cache"},
    "npm": {"npm_config_cache": f"{TARGET}/npm"},
    "uv": {"UV_CACHE_DIR": f"{TARGET}/uv"},
    "cargo": {"CARGO_HOME": f"{TARGET}/cargo"},
}
WHEELS = f"{TARGET}/pip/wheels"
_NO_PACKAGES = (".", "_logs", "_update-notifier", "interpreter-v", "selfcheck", "CACHEDIR.TAG")
"""Beginnings of the names of files and directories that package managers create in a cache even if
they download nothing.
"""
_OFFLINE: dict[CacheKind, dict[str, str]] = {
    # pip finds cached packages only by querying the index; without an index it needs wheel files.
    "pip": {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS},
    "npm": {"npm_config_offline": "true"},
    "uv": {"UV_OFFLINE": "1"},
    "cargo": {"CARGO_NET_OFFLINE": "true"},
}


@dataclass(frozen=True)
class Caches:
    """The caches that the workers of one run use."""

    kinds: tuple[CacheKind, ...] = ()
    generation: Path | None = None
    """Directory of the stored caches (a generation) that the workers use; None if none are stored,
    or if this run creates a new generation.
    """
    warms: bool = False
    """Whether a worker of this run that succeeds makes its caches available to later runs."""
    notices: tuple[str, ...] = ()

    def lower(self, kind: CacheKind) -> Path | None:
        """Return the directory of the stored cache of a package manager; None if there is none."""
        found = None if self.generation is None else self.generation / kind
        return found if found is not None and found.is_dir() else None


NO_CACHES = Caches()


def environment(kinds: Sequence[CacheKind], *, offline: bool) -> dict[str, str]:
    """Return variables that tell package managers where their caches are, and to stay offline."""
    found: dict[str, str] = {}
    for kind in kinds:
        found |= _VARIABLES[kind]
        if offline:
            found |= _OFFLINE[kind]
    return found


def generations(repository: Repository) -> list[Path]:
    """Return the directories of all stored generations of caches, newest first."""
    # By modification time, because names of two runs in the same second do not sort.
    found = (cache for cache in _place(repository).glob("[!.]*") if cache.is_dir())
    return sorted(found, key=lambda cache: cache.stat().st_mtime_ns, reverse=True)


def _place(repository: Repository) -> Path:
    return own_place(repository.state_dir, CACHES)


def find_caches(
    repository: Repository, base: str, kinds: tuple[CacheKind, ...], run: Path, *, warms: bool
) -> Caches:
    """Choose the generation of caches for a run, or return the one that was chosen before.

    Args:
        repository: The repository.
        base: The workers' base commit; a generation made for its lock files is preferred.
        kinds: The package managers whose caches are requested.
        run: The run's directory.
        warms: Whether the run creates a new generation, starting with empty caches.
    """
    if warms or not kinds:
        return Caches(kinds=kinds, warms=warms)
    chosen = run / _CHOICE
    known = _place(repository) / chosen.read_text() if chosen.exists() else None
    published = generations(repository)
    if known in published:
        return Caches(kinds=kinds, generation=known)
    key = lock_key(repository, base)
    fitting = [cache for cache in published if cache.name.endswith(f"-{key}")]
    newest = next(iter((*fitting, *published)), None)
    if newest is not None:
        chosen.write_text(newest.name)
    found = Caches(kinds=kinds, generation=newest)
    empty = [kind for kind in kinds if found.lower(kind) is None]
    notices = []
    if empty:
        notices.append(f"nothing is cached for {', '.join(empty)}: run `orchestrator cache warm`")
    if published and not fitting:
        notices.append(
            "lock files changed since the caches were created: run `orchestrator cache warm`"
        )
    return Caches(kinds=kinds, generation=newest, notices=tuple(notices))


def lock_key(repository: Repository, commit: str) -> str:
    """Return a hash of the lock files of a commit."""
    # Imported here because only runs with caches need it.
    from orchestrator.engine.images.project import LOCK_FILES

    listing = repository.git.tree(commit)
    names = {os.fsencode(name) for name in LOCK_FILES}
    locks = [entry for entry in listing if entry.rpartition(b"\t")[2].rpartition(b"/")[2] in names]
    return hashlib.sha256(b"\0".join(locks)).hexdigest()[:8]


def ready_caches(caches: Caches, root: Path, user: tuple[int, int], mode: Mode) -> Mounts:
    """Return the mounts of the shared caches, each with a worker's own layer on top.

    Args:
        caches: The caches of the run.
        root: The worker's state directory.
        user: uid and gid of the worker.
        mode: `overlay`, or `bind` to copy the caches.

    Raises:
        OSError: The disk is full.
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
        # protection: each-worker-has-its-own-copy
        return BindMount(source=_copied(lower, place, user), target=target, read_only=False)
    # protection: cache-belongs-to-workers-user
    if lower.stat().st_uid != user[0]:
        lower = _copied(lower, place / "lower", user)
    upper, work = place / "upper", place / "work"
    for path in (upper, work):
        _make(path, user)
    # protection: each-worker-has-its-own-layer
    return OverlayMount(lower=lower, upper=upper, work=work, target=target)


def _make(place: Path, user: tuple[int, int]) -> None:
    if not place.exists():
        place.mkdir(parents=True)
        os.chown(place, *user)


def _copied(lower: Path, place: Path, user: tuple[int, int]) -> Path:
    """Return a copy of a cache that belongs to a user; make it unless it exists."""
    if not place.exists():
        half = place.with_name(place.name + _HALF)
        remove_tree(half)
        # protection: links-are-copied-as-links
        shutil.copytree(lower, half, symlinks=True)
        change_owner(half, user)
        half.rename(place)
    return place


def publish(caches: Caches, repository: Repository, base: str, run_id: str, root: Path) -> None:
    """Store the caches of a worker as a generation named after its run, unless that was done.

    Raises:
        ConfigError: The worker put no package into any of the caches.
        OSError: The generation could not be published.
    """
    made = root / CACHES / _FRESH
    place = _place(repository)
    target = place / f"{run_id}-{lock_key(repository, base)}"
    if not caches.warms or target.exists():
        return
    # protection: empty-cache-replaces-no-other
    if not any(_has_packages(made / kind) for kind in caches.kinds):
        raise ConfigError(
            f"`setup` put no package into the cache of {', '.join(caches.kinds)}",
            key="cache.unfilled",
        )
    # The closed directory around the caches keeps other users of this machine out.
    # protection: caches-are-not-writable-for-others
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    _clean(made)
    # Workers with a shared checkout have this user, and so need no copy of the caches.
    change_owner(made, shared_user())
    made.rename(target)


def _has_packages(cache: Path) -> bool:
    """Return whether a cache contains more than logs and markers."""
    for _, directories, files in os.walk(cache):
        directories[:] = [name for name in directories if not name.startswith(_NO_PACKAGES)]
        if any(not name.startswith(_NO_PACKAGES) for name in files):
            return True
    return False


def _clean(tree: Path) -> None:
    """Make a directory tree usable for its owner; remove special files and set-uid bits."""
    tree.chmod(0o755)
    for folder, directories, files in os.walk(tree):
        for name in (*directories, *files):
            path = Path(folder, name)
            # protection: publishing-does-not-follow-links
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                path.chmod(mode & 0o777 | stat.S_IRWXU)
            elif stat.S_ISREG(mode):
                path.chmod(mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
            # protection: special-files-are-not-published
            elif not stat.S_ISLNK(mode):
                path.unlink()


def remove_generations(repository: Repository, *, keep: int = 0) -> list[Path]:
    """Remove all generations but the `keep` newest, unless a run is live; return those removed."""
    with repository.lock():
        # protection: caches-of-live-runs-are-kept
        if any(run.other_user is None and run.is_live() for run in all_runs(repository.state_dir)):
            return []
        going = generations(repository)[keep:]
        for cache in going:
            # Hide each generation with a rename first; after a crash, the next call removes the
            # hidden rest.
            cache.rename(cache.with_name(f".{cache.name}"))
        for left in _place(repository).glob(".*"):
            remove_tree(left)
        return going
