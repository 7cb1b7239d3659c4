"""Find out whether a worker changed its private git directory, without running git in it."""

import stat
from pathlib import Path

from orchestrator.base.files.remove_tree import entry_names
from orchestrator.base.files.safe_open import open_regular
from orchestrator.state.worker.worker_directory import Store

_EARLIER = "earlier"
_OF_HARVEST = frozenset({"made", _EARLIER})
"""Names of files that only the git directory for packing has, and not the worker's own."""
_OF_PACKS = (".pack", ".idx", ".rev")
_INDEX = "index"
_PIECE = 1024**2


def is_store_as_created(store: Store, shared: Path) -> bool:
    """Return whether a worker's git directory has only what it had at its creation.

    The worker's directory is compared with the git directory for packing, which was created with
    the same files and which no worker can see. If the worker's directory was created with
    additional files, such as submodules, the result is False.

    Args:
        store: The files of the worker.
        shared: The index of the shared checkout, used if the git directory for packing has none
            yet.
    """
    own = store.harvest / _INDEX
    try:
        head = (store.harvest / "HEAD").read_text().strip().removeprefix("ref: ")
        # protection: plain-head-must-be-unchanged
        # protection: plain-index-must-be-unchanged
        return (
            entry_names(store.git) == entry_names(store.harvest) - _OF_HARVEST | {_INDEX}
            and all(_is_same(store, name) for name in ("HEAD", head))
            and _is_same_file(store.git / _INDEX, own if own.exists() else shared)
            and holds_no_new_objects(store)
        )
    except OSError:
        return False


def _is_same(store: Store, name: str) -> bool:
    return _is_same_file(store.git / name, store.harvest / name)


def _is_same_file(hostile: Path, ours: Path) -> bool:
    with open_regular(hostile) as theirs, ours.open("rb") as other:
        while True:
            piece, wanted = theirs.read(_PIECE), other.read(_PIECE)
            if piece != wanted:
                return False
            if not wanted:
                return True


def note_earlier(store: Store, pack: str) -> None:
    """Record the name of the pack with the commits of a worker's earlier attempts."""
    (store.harvest / _EARLIER).write_text(pack)


def holds_no_new_objects(store: Store) -> bool:
    """Return whether a worker's object directory has only the files that it was created with.

    Raises:
        OSError: A directory is missing.
    """
    objects, earlier = store.git / "objects", store.harvest / _EARLIER
    folders = (objects, objects / "info", objects / "pack")
    if not all(stat.S_ISDIR(folder.lstat().st_mode) for folder in folders):
        return False
    pack = earlier.read_text() if earlier.exists() else None
    given = {f"{pack}{suffix}" for suffix in _OF_PACKS} if pack else set()
    *others, packs = (entry_names(folder) for folder in folders)
    # protection: plain-packs-are-those-given
    return others == [{"info", "pack"}, {"alternates"}] and packs <= given
