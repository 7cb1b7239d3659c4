"""Implement `enforce: ro`: a worker can write only to the directories in `paths`.

The worktree is mounted read-only, and each directory of `paths` is mounted again in its place,
writable. If the worktree is an overlay, the upper layers of these mounts are directories in the
upper layer of the whole tree, where other code looks for files that the worker wrote.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.text.path_patterns import directories
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.repository.repository import Repository
from orchestrator.state.worker.worker_directory import Store

VIEW = "view"
"""Name of the overlay that shows the whole worktree."""
_PREFIX = "confined-"
# protection: mount-points-are-not-created-through-links
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_TREE, _GITLINK = b"040000 tree ", b"160000 commit "


def check_confined(config: ParallelConfig, repository: Repository, base: str) -> None:
    """Reject `enforce: ro` if the directories in `paths` cannot be mounted separately.

    Raises:
        ConfigError: A path is no directory, or a file outside the paths must be written.
    """
    if config.triggers.enforce is None:
        return
    hint = "name directories from the repository's top, such as `src/api`, or leave `enforce` out"
    # protection: enforce-ro-refused-without-paths
    if not config.triggers.paths:
        raise ConfigError(
            "`enforce` is `ro`, but `--alert-outside` (in a file: `paths`) names no directory",
            key="enforce.no-paths",
            hint=hint,
        )
    try:
        places = directories(config.triggers.paths)
    except ValueError as error:
        raise ConfigError(
            f"`enforce: ro`: {error}", key="enforce.path-invalid", hint=hint
        ) from error
    for place in places:
        if (other := _in_the_way(repository, base, place)) is not None:
            raise ConfigError(
                f"`enforce: ro`: `{other}` is not a directory",
                key="enforce.path-invalid",
                hint=hint,
            )
    # protection: enforce-ro-refused-with-submodules
    if any(entry.startswith(_GITLINK) for entry in repository.git.tree(base)):
        raise ConfigError(
            "`enforce: ro` is not supported in a repository with submodules",
            key="enforce.submodules",
            hint="leave `enforce` out: changes outside `paths` are still reported",
        )
    dotenv = config.project.dotenv
    # protection: enforce-ro-refused-with-dotenv-file-outside-paths
    if dotenv is not None and not any(dotenv.startswith(f"{place}/") for place in places):
        raise ConfigError(
            f"`enforce: ro`: the `dotenv` file `{dotenv}` is not in a directory of "
            "`--alert-outside` (in a file: `paths`)",
            key="enforce.dotenv",
            hint="use a file in one of these directories, or leave `enforce` or `dotenv` out",
        )


def _in_the_way(repository: Repository, base: str, place: str) -> str | None:
    """Return the path in a commit that prevents a directory from being created, or None."""
    parts = place.split("/")
    for above in ("/".join(parts[:count]) for count in range(1, len(parts) + 1)):
        entry = repository.git.run("ls-tree", "--full-tree", base, "--", above)
        # protection: file-at-path-of-directory-is-refused
        if entry and not entry.startswith(_TREE):
            return above
    return None


def confined_to(config: ParallelConfig) -> tuple[str, ...]:
    """Return the only directories that a worker can write to; empty if it can write everywhere."""
    triggers = config.triggers
    return () if triggers.enforce is None else directories(triggers.paths)


class Scratch(NamedTuple):
    """The host's directories for one overlay of a worker whose files are otherwise read-only."""

    upper: Path
    """The overlay's upper layer, which receives the written files and is empty at first."""
    work: Path
    """The overlay's internal work directory, whose files belong to root."""


def scratch(store: Store, name: str) -> Scratch:
    """Return the directories of one overlay of a worker with `enforce: ro`."""
    place = store.overlay / f"{_PREFIX}{name}"
    return Scratch(upper=place / "upper", work=place / "work")


def all_scratch(store: Store) -> Iterator[Scratch]:
    """Yield the directories of all overlays that a worker with `enforce: ro` has had."""
    for place in sorted(store.overlay.glob(f"{_PREFIX}*")):
        yield scratch(store, place.name.removeprefix(_PREFIX))


def make_scratch(store: Store, count: int, user: tuple[int, int]) -> None:
    """Create the directories for the overlay of the whole tree and for `count` others."""
    for name in (VIEW, *map(str, range(count))):
        for place in scratch(store, name):
            place.mkdir(parents=True)
            if user[0] != os.getuid():
                os.chown(place, *user)


def make_directory(tree: Path, path: str, user: tuple[int, int]) -> None:
    """Create a directory and its parents in a tree that the host created, without following links.

    The tree may contain links that another worker committed.

    Raises:
        OrchestratorError: A file or link has the path of a directory.
        OSError: The disk is full.
    """
    folder = os.open(tree, _FOLDER)
    try:
        for name in path.split("/"):
            inner = _open_directory(name, folder, user)
            os.close(folder)
            folder = inner
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise OrchestratorError(
            f"`enforce: ro`: `{path}` is not a directory in the commit that the worker starts from",
            key="enforce.no-directory",
        ) from error
    finally:
        os.close(folder)


def _open_directory(name: str, folder: int, user: tuple[int, int]) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=folder)
        if user[0] != os.getuid():
            os.chown(name, *user, dir_fd=folder, follow_symlinks=False)
    return os.open(name, _FOLDER, dir_fd=folder)
