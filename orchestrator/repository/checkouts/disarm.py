"""Prevent git from running programs of a worker when the user works in the worker's worktree.

A repository's own configuration may name tracked files as hooks, filters or diff drivers
(`core.hooksPath=.githooks`). In a worker's worktree the worker may have written the named files,
and a plain `git status` of the user in this worktree would run them.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.repository.checkouts.worktree_list import list_linked_worktrees
from orchestrator.repository.git.command import Git
from orchestrator.repository.programs import harmless, in_tree
from orchestrator.repository.repository import Repository

_EXTENSION = "extensions.worktreeconfig"
_TREE = "core.worktree"
_SETTINGS = "config.worktree"
"""File of the per-worktree configuration in a git directory."""
_ENABLED = "worktree-config.json"
"""File in the state directory with the settings that were moved when the extension was enabled; it
exists only if this program enabled the extension.
"""


def keep_off(repository: Repository, path: Path, git_dir: Path) -> None:
    """Configure a new worktree so that git runs no program from the worktree's files.

    Does nothing unless the configuration names files of the tree, because the per-worktree
    configuration is an extension that other programs may not know. The caller holds the repository
    lock.
    """
    risky = in_tree(repository.git_config.items(), path)
    off: dict[str, str] = {}
    for key in risky:
        off |= harmless(key)
    if not off:
        return
    _enable_extension(repository)
    for key, value in off.items():
        _set(git_dir / _SETTINGS, key, value)


def _enable_extension(repository: Repository) -> None:
    """Enable git's per-worktree configuration, and move into it what only the main worktree uses.

    The move, which git's manual asks for, is one change of the file: no git command sees half.
    """
    common = repository.common_dir
    config = common / "config"
    # protection: users-per-worktree-configuration-is-recognised
    if _get(config, _EXTENSION, "--type=bool") == "true":
        return
    found = {"core.bare": _get(config, "core.bare", "--type=bool"), _TREE: _get(config, _TREE)}
    moved = {key: value for key, value in found.items() if value not in (None, "false")}
    write_atomically(repository.state_dir / _ENABLED, json.dumps(moved))
    for key, value in moved.items():
        _set(common / _SETTINGS, key, value)
    with _changing(config) as changed:
        _set(changed, _EXTENSION, "true")
        # protection: core-bare-and-core-worktree-apply-to-main-worktree-only
        for key in moved:
            Git(None).run("config", "--file", str(changed), "--unset-all", key)


def give_back(repository: Repository) -> None:
    """Undo what `keep_off` changed in the user's configuration, after the last worktree is gone.

    Does nothing if the user enabled the per-worktree configuration, or uses it meanwhile. The
    caller holds the repository lock.

    Raises:
        RepositoryError: Another git command is changing the configuration.
    """
    common, noted = repository.common_dir, repository.state_dir / _ENABLED
    if not noted.exists() or any(
        (worktree.git_dir / _SETTINGS).exists() for worktree in list_linked_worktrees(common)
    ):
        return
    moved: dict[str, str] = json.loads(noted.read_bytes())
    if _read_settings(common / _SETTINGS) == moved:
        with _changing(common / "config") as config:
            for key, value in moved.items():
                _set(config, key, value)
            if _get(config, _EXTENSION) is not None:
                Git(None).run("config", "--file", str(config), "--unset-all", _EXTENSION)
        (common / _SETTINGS).unlink(missing_ok=True)
    noted.unlink()


@contextmanager
def _changing(config: Path) -> Iterator[Path]:
    """Yield a copy of a configuration file, which replaces the file under git's own lock."""
    config = config.resolve()
    lock = config.with_name(f"{config.name}.lock")
    try:
        lock.touch(exist_ok=False)
    except FileExistsError as error:
        raise RepositoryError(
            f"another git command is changing {lock.with_suffix('')}",
            key="git.locked",
            hint=f"wait for that command's end; if it died, remove {lock}",
        ) from error
    try:
        shutil.copy2(config, lock)
        owner = config.stat()
        with suppress(PermissionError):
            os.chown(lock, owner.st_uid, owner.st_gid)
        yield lock
        lock.replace(config)
    finally:
        lock.unlink(missing_ok=True)


def _get(file: Path, key: str, *options: str) -> str | None:
    try:
        return Git(None).text("config", "--file", str(file), *options, "--get", key)
    except GitCommandError:
        return None


def _read_settings(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    listed = Git(None).text("config", "--file", str(file), "--list", "-z").split("\0")
    return {key: value for key, _, value in (line.partition("\n") for line in listed) if key}


def _set(file: Path, key: str, value: str) -> None:
    Git(None).run("config", "--file", str(file), key, value)
