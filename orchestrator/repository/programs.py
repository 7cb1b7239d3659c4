"""Settings by which git starts programs, and what becomes of each of them.

This is the only place that decides it, for the git commands of this program and for the user's own
git in a worker's worktree. `tests/repository/test_programs.py` compares the list with the settings
that the installed git knows.

Git commands of this program start none of these programs: every configured one is overridden. `Use`
has the exceptions, in which a file of the tree runs only if the user asked to commit the checkout.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Use(Enum):
    """What a git command is for, if it may start programs that the user configured."""

    ADD = "add"
    """It commits files of the user's own checkout, with the filters of the user's `git add`."""
    STATUS = "status"
    """It compares files of the user's own checkout, with the same filters unless they are files of
    the tree, which may be a worker's after a merge."""
    REMOTES = "remotes"
    """It reaches a remote repository, as the user's `git fetch` and `git push` do, but with no file
    of the tree."""


# Git appends path, old file, its id and mode, new file, its id and mode.
_PLAIN_DIFF = """sh -c 'diff -u -- "$2" "$5"; true' diff"""
# protection: filters-disabled
_OFF = "{name}.clean= {name}.smudge= {name}.process= {name}.required=false"
# protection: programs-of-tree
PROGRAMS: tuple[tuple[str, str, Use | None], ...] = (
    (r"core\.hookspath", os.devnull, None),
    # Git 2.54 and later also runs hooks that the configuration defines, wherever `core.hooksPath`
    # leads. Any name may be one of them.
    (r"hook\..*\.[a-z]+", "{name}.enabled=false", None),
    (r"core\.fsmonitor", "false", None),
    (r"filter\..*\.(clean|smudge|process)", _OFF, Use.ADD),
    # A required filter that is switched off would make every command fail.
    (r"filter\..*\.required", _OFF, Use.ADD),
    (r"lfs\.extension\..*\.(clean|smudge)", "cat", Use.ADD),
    (r"diff\.external", _PLAIN_DIFF, None),
    (r"diff\..*\.textconv", "cat", None),
    (r"diff\..*\.command", _PLAIN_DIFF, None),
    (r"(core|sequence)\.editor", "vi", None),
    (r"core\.pager", "cat", None),
    (r"pager\..*", "false", None),
    (r"gpg\.(program|openpgp\.program)", "gpg", None),
    (r"gpg\.x509\.program", "gpgsm", None),
    (r"gpg\.ssh\.(program|defaultkeycommand)", "ssh-keygen", None),
    (r"core\.sshcommand", "ssh", Use.REMOTES),
    (r"core\.(askpass|gitproxy)", "false", Use.REMOTES),
    (r"credential\.(.*\.)?helper", "", Use.REMOTES),
    (r"remote\..*\.uploadpack", "git-upload-pack", Use.REMOTES),
    (r"remote\..*\.receivepack", "git-receive-pack", Use.REMOTES),
    (r"remote\..*\.vcs", "none", Use.REMOTES),
    (r"protocol\..*\.allow", "never", Use.REMOTES),
    (r"submodule\..*\.update", "checkout", None),
    (r"interactive\.difffilter", "cat", None),
    # All values of this key are used, so that none can be overridden.
    (r"gc\.recentobjectshook", "gc.auto=0 maintenance.auto=false", None),
    (r"sendemail\.(.*\.)?smtpserver", "false", None),
    (r"imap\.tunnel", "false", None),
    (r"(man|browser|difftool|mergetool|lfs\.customtransfer)\..*\.path", "false", None),
    (r"trailer\..*\.(command|cmd)", "true", None),
    # Others, such as merge drivers, and programs of later versions have such names.
    (
        r"(?!alias\.|color\.).*(command|cmd|program|hook|helper|driver|editor|askpass)",
        "false",
        None,
    ),
)
"""Patterns of settings that name a program; for each a harmless value, or the settings that replace
it (`{name}` stands for the key without its last part), and the use that may run the program.
"""
_WORDS = re.compile(r"[^\s'\"|&;()<>$`=]+")
_HOME = re.compile(r"\$(?:HOME\b|\{HOME\})")
_COMPUTED = re.compile(r"[$`]")
"""Pattern of a shell expansion: a path such as `$(git rev-parse --show-toplevel)/tools/x` may lead
anywhere.
"""
_ELSEWHERE = ("/", "~", "-", "%d/")
"""Beginnings of words that are no path in the tree; ssh replaces `%d` by the home directory."""


def harmless(key: str) -> dict[str, str]:
    """Return the settings that take the place of one that names a program; none for any other."""
    rule = _rule(key)
    return _settings(key, rule[0]) if rule else {}


def _rule(key: str) -> tuple[str, Use | None] | None:
    """Return what `PROGRAMS` says of a setting: what replaces it, and the use that may run it."""
    for pattern, instead, allowed in PROGRAMS:
        if re.fullmatch(pattern, key, re.DOTALL):
            return instead, allowed
    return None


def _settings(key: str, value: str) -> dict[str, str]:
    if "=" not in value or value == _PLAIN_DIFF:
        return {key: value}
    name = key.rpartition(".")[0]
    pairs = (setting.partition("=") for setting in value.split(" "))
    return {other.replace("{name}", name): new for other, _, new in pairs}


def overridden(
    configured: Iterable[tuple[str, str]], *, use: Use | None, tree: Path | None
) -> dict[str, str]:
    """Return the settings that keep a git command from starting programs.

    Args:
        configured: All settings of the repository, with repetitions.
        use: What may run nevertheless.
        tree: The work tree; a program in it is no program of the user.
    """
    found: dict[str, str] = {}
    for key, value in configured:
        rule = _rule(key)
        if rule is None:
            continue
        instead, allowed = rule
        is_users = allowed == (Use.ADD if use == Use.STATUS else use) is not None
        # protection: programs-of-tree-run-only-to-commit-it
        if not is_users or (use != Use.ADD and tree and leads_into(value, tree)):
            # protection: configured-programs-are-overridden
            found |= _settings(key, instead)
    return found


def in_tree(configured: Iterable[tuple[str, str]], tree: Path) -> Iterator[str]:
    """Yield the settings by which git would run a file of a worker's worktree."""
    for key, value in configured:
        is_outside = value.lstrip().startswith(("/", "~"))
        if key.startswith("hook."):
            # A hook such as `npx lint` runs what the tree says, without naming a file of it.
            # protection: hooks-without-path-are-disabled-in-worktrees
            is_risky = key.endswith(".command") and (not is_outside or leads_into(value, tree))
        elif key == "core.hookspath":
            is_risky = not is_outside
        else:
            is_risky = bool(harmless(key)) and leads_into(value, tree)
        if is_risky:
            yield key


def leads_into(command: str, tree: Path) -> bool:
    """Return whether a command may run a file in a tree; the file need not exist yet."""
    command = _HOME.sub("~", command).removeprefix("!")
    # protection: programs-at-computed-path-are-disabled
    if "/" in command and _COMPUTED.search(command):
        return True
    # protection: programs-that-do-not-exist-yet-are-disabled
    return any(
        "/" in word or _runs(tree / word)
        for word in _WORDS.findall(command)
        if not word.startswith(_ELSEWHERE) and "://" not in word
    )


def _runs(path: Path) -> bool:
    """Return whether an interpreter would run this path: a directory is most often no program."""
    return os.path.lexists(path) and (not path.is_dir() or (path / "__main__.py").exists())


@dataclass(frozen=True)
class Listing:
    """The settings of a repository at some moment, and the files that they depend on."""

    settings: tuple[tuple[str, str], ...]
    files: Mapping[str, tuple[int, ...]]
    """State of each file that has settings, or would have some if it existed."""

    def is_current(self) -> bool:
        """Return whether no file has changed."""
        return all(_state_of(path) == state for path, state in self.files.items())

    @classmethod
    def parse(cls, text: str, git_dir: str, home: str, xdg: str) -> "Listing":
        """Parse the output of `git config --list --show-scope --show-origin -z`."""
        fields = text.split("\0")
        files = {f"{home}/.gitconfig", f"{xdg or f'{home}/.config'}/git/config"}
        files |= {f"{git_dir}/config", f"{git_dir}/config.worktree"}
        settings = []
        for scope, origin, entry in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
            # Settings on the orchestrator's own git command line are not the user's.
            if scope == "command":
                continue
            key, end, value = entry.partition("\n")
            # A key without `=` is true; one with an empty value is false.
            # protection: key-without-value-is-true
            settings.append((key, value if end else "true"))
            file = origin.removeprefix("file:")
            files.add(file)
            if re.fullmatch(r"include(if\..*)?\.path", key, re.DOTALL):
                files.add(os.path.join(os.path.dirname(file), os.path.expanduser(value)))  # noqa: PTH111, PTH118, PTH120
                # A condition may be about the branch.
                files |= {f"{git_dir}/HEAD", f"{git_dir}/reftable/tables.list"}
        return cls(tuple(settings), {path: _state_of(path) for path in files})


def _state_of(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path)  # noqa: PTH116 - before every git command
    except (OSError, ValueError):
        return ()
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def absolute_path(path: str) -> str:
    """Return the absolute directories of a `PATH`."""
    return os.pathsep.join(place for place in path.split(os.pathsep) if place.startswith("/"))
