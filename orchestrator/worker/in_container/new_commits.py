"""Create commits from trees and index entries."""

import os

from orchestrator.worker.in_container.host_git import HostGit

GITLINK = "160000"
"""File mode with which git records a submodule."""
Entries = dict[bytes, tuple[str, str]]
"""File mode and object id of files, by path."""


def index_lines(entries: Entries) -> bytes:
    """Return index entries in the format that `git update-index -z --index-info` reads."""
    lines = (f"{mode} {blob}\t".encode() + path + b"\0" for path, (mode, blob) in entries.items())
    return b"".join(lines)


def commit_index(git: HostGit, parent: str, message: str) -> str:
    """Commit the index on top of `parent`; return `parent` itself if no file differs."""
    tree = git.text("write-tree")
    if tree == git.text("rev-parse", f"{parent}^{{tree}}"):
        return parent
    return git.text("commit-tree", tree, "-p", parent, stdin=message.encode())


def commit_entries(
    git: HostGit, entries: Entries, parent: str, message: str, *, alone: bool = False
) -> str:
    """Commit files on top of a commit; with `alone`, the new commit has no other files."""
    scratch = {"GIT_INDEX_FILE": os.path.join(git.places.git_dir, "scratch-index")}
    git.text("read-tree", "--empty" if alone else parent, env=scratch)
    form = ("update-index", "--add", "-z", "--index-info")
    git.text(*form, stdin=index_lines(entries), env=scratch)
    tree = git.text("write-tree", env=scratch)
    return git.text("commit-tree", tree, "-p", parent, stdin=message.encode())


def carry_over(git: HostGit, *, at: str, made: str, tip: str, message: str) -> str | None:
    """Apply the changes from commit `at` to commit `made` on top of the commit `tip`.

    Returns:
        The last commit; None if `made` and `tip` changed a file in different ways, or git failed.
    """
    changed, meanwhile = _changed(git, at, made), _changed(git, at, tip)
    both = changed.keys() & meanwhile.keys()
    if any(changed[path] != meanwhile[path] for path in both):
        return None
    entries = {path: entry for path, entry in changed.items() if path not in both}
    if not entries:
        return tip
    try:
        return commit_entries(git, entries, tip, message)
    except RuntimeError:
        return None


def _changed(git: HostGit, one: str, other: str) -> Entries:
    form = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=none")
    fields = git.paths("diff-tree", *form, one, other)
    words = (head.decode().split(" ") for head in fields[::2])
    return {path: (w[1], w[3]) for path, w in zip(fields[1::2], words, strict=True)}
