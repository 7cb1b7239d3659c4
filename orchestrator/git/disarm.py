"""Prevent git from running programs of a worker when the user works in the worker's worktree.

A repository's own configuration may name tracked files as hooks, filters or diff drivers
(`core.hooksPath=.githooks`). In a worker's worktree the worker may have written the named files,
and a plain `git status` of the user in this worktree would run them.
"""

import os
import re
from pathlib import Path

from orchestrator.errors import GitCommandError
from orchestrator.git.command import Git
from orchestrator.git.repository import Repository

# Git appends path, old file, its id and mode, new file, its id and mode.
_PLAIN_DIFF = """sh -c 'diff -u -- "$2" "$5"; true' diff"""
_HARMLESS = (
    (r"core\.hookspath", "/dev/null"),
    (r"core\.fsmonitor", "false"),
    (r"filter\..*\.(clean|smudge|process)", ""),
    (r"filter\..*\.required", "false"),
    (r"diff\.external", _PLAIN_DIFF),
    (r"diff\..*\.textconv", "cat"),
    (r"diff\..*\.command", _PLAIN_DIFF),
    (r"merge\..*\.driver", "false"),
    (r"(core|sequence)\.editor", "vi"),
    (r"core\.pager", "cat"),
    (r"pager\..*", "false"),
    (r"gpg\.(program|openpgp\.program)", "gpg"),
    (r"gpg\.x509\.program", "gpgsm"),
    (r"gpg\.ssh\.(program|defaultkeycommand)", "ssh-keygen"),
    (r"core\.sshcommand", "ssh"),
    (r"core\.(askpass|gitproxy|alternaterefscommand)", "false"),
    (r"credential\.(.*\.)?helper", ""),
    (r"interactive\.difffilter", "cat"),
    (r"(hook|trailer)\..*\.(command|cmd)", "true"),
)
"""Patterns of settings that name a program, each with a harmless value."""
_HOOKS = "core.hookspath"
_WORDS = re.compile(r"[^\s'\"|&;()<>$`=]+")
_COMPUTED = re.compile(r"[$`]")
"""Pattern of a shell expansion: a path such as `$(git rev-parse --show-toplevel)/tools/x` may lead
anywhere.
"""


def keep_off(repository: Repository, path: Path, git_dir: Path) -> None:
    """Configure a new worktree so that git runs no program from the worktree's files.

    Does nothing unless the configuration names files of the tree, because the per-worktree
    configuration is an extension that other programs may not know. The caller holds the repository
    lock.

    Args:
        repository: The user's repository.
        path: The worktree.
        git_dir: The worktree's own git directory.
    """
    replaced = _replacements(repository.configured, path)
    if not replaced:
        return
    _enable_extension(repository)
    for key, value in replaced.items():
        _set(git_dir / "config.worktree", key, value)


def _replacements(configured: dict[str, str], path: Path) -> dict[str, str]:
    risky = {key for key, value in configured.items() if _replacement(key) and _inside(value, path)}
    if not configured.get(_HOOKS, "/").startswith(("/", "~")):
        risky.add(_HOOKS)
    # A required filter that is switched off would make every command fail.
    drivers = {key.rpartition(".")[0] for key in risky if key.startswith("filter.")}
    risky |= {f"{driver}.required" for driver in drivers}
    return {key: found[0] for key in sorted(risky) if (found := _replacement(key)) is not None}


def _replacement(key: str) -> tuple[str] | None:
    for pattern, harmless in _HARMLESS:
        if re.fullmatch(pattern, key, re.DOTALL):
            return (harmless,)
    return None


def _inside(command: str, path: Path) -> bool:
    """Return whether a command may run a file in the worktree; the file need not exist yet."""
    if "/" in command and _COMPUTED.search(command):
        return True
    return any(
        not word.startswith(("/", "~", "-")) and ("/" in word or os.path.lexists(path / word))
        for word in _WORDS.findall(command)
    )


def _enable_extension(repository: Repository) -> None:
    """Enable git's per-worktree configuration, and move `core.worktree` into it, as git does."""
    common = repository.common_dir
    if _get(common / "config", "extensions.worktreeConfig") == "true":
        return
    _set(common / "config", "extensions.worktreeConfig", "true")
    main = _get(common / "config", "core.worktree")
    if main is not None:
        _set(common / "config.worktree", "core.worktree", main)
        Git(None).run("config", "--file", str(common / "config"), "--unset", "core.worktree")


def _get(file: Path, key: str) -> str | None:
    try:
        return Git(None).text("config", "--file", str(file), "--get", key)
    except GitCommandError:
        return None


def _set(file: Path, key: str, value: str) -> None:
    Git(None).run("config", "--file", str(file), key, value)
