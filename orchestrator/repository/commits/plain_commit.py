"""Commit a few ordinary files on top of a commit, without a work tree or an index."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.git_directory import make_bare
from orchestrator.repository.objects.object_packs import pack_range
from orchestrator.repository.repository import Repository
from orchestrator.repository.settings import is_true

_BRANCH = "refs/heads/plain"
_CONVERTING = {
    "core.autocrlf": False,
    "core.filemode": True,
    "core.ignorecase": False,
    "core.sparsecheckout": False,
}
"""Git settings, each with the value under which git stores files exactly as they are on disk."""


@dataclass(frozen=True)
class PlainFile:
    """A regular file to commit."""

    path: str
    """Relative path of ASCII letters, digits and a few other characters that git does not quote."""
    executable: bool
    content: bytes


@dataclass(frozen=True)
class PlainFiles:
    """Files to commit, and the directories that contain them."""

    files: tuple[PlainFile, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlainCommit:
    """A commit to create."""

    base: str
    """The commit that the worker's first attempt started from."""
    start: str
    """The parent commit: the base, or the result of an earlier attempt."""
    objects: Path
    """Object directory with the objects that the base reaches."""
    message: str
    plain: PlainFiles


def takes_as_they_are(repository: Repository, rules: Git, paths: Sequence[str]) -> bool:
    """Return whether `git add` would store the files without converting their content.

    Args:
        repository: The user's repository.
        rules: Runs git in a work tree whose attributes and ignore patterns apply to the files.
        paths: The files.
    """
    settings = repository.settings(tuple(_CONVERTING))
    # protection: plain-converting-settings-refused
    if any(is_true(value) is not _CONVERTING[key] for key, value in settings.items()):
        return False
    listed = b"".join(path.encode() + b"\0" for path in paths)
    # protection: plain-files-with-attributes-refused
    if rules.run("check-attr", "-z", "--stdin", "--all", stdin=listed):
        return False
    # protection: plain-ignored-files-refused
    return not rules.succeeds("check-ignore", "-q", "-z", "--stdin", "--no-index", stdin=listed)


def commit_plainly(
    repository: Repository, commit: PlainCommit, scratch: Path, pack: Path
) -> str | None:
    """Write a pack file with a commit of the files, and return the commit's id.

    Like one from a container, the pack has everything since the base.

    Args:
        repository: The user's repository.
        commit: The commit to make.
        scratch: Temporary git directory to create and remove.
        pack: File to create.

    Returns:
        The commit; the parent if the files do not change its tree; None if the parent has
        a file or link at the path of a directory of the files.
    """
    remove_tree(scratch)
    make_bare(scratch, object_format=repository.object_format)
    try:
        # Git writes a pack even for a few objects, because the caller checks packs.
        config = {"fastimport.unpackLimit": "1"}
        continues = commit.start != commit.base
        objects = repository.objects_dir if continues else commit.objects
        git = Git(scratch, alternates=objects, config=config, limits=UNTRUSTED, sealed=True)
        answer = git.run("fast-import", "--quiet", stdin=_stream(commit, *repository.identity()))
        *folders, old, made, new = split_lines(answer.decode("ascii"))
        # protection: plain-directory-does-not-replace-file
        if not all(line.startswith(("040000 tree ", "missing ")) for line in folders):
            return None
        if old == new:
            return commit.start
        (written,) = (scratch / "objects" / "pack").glob("*.pack")
        if continues:
            written = scratch / f"{pack_range(git, made, commit.base, scratch)}.pack"
        os.replace(written, pack)  # noqa: PTH105  # replaces the file of a process that died
        return made
    finally:
        remove_tree(scratch)


def _stream(commit: PlainCommit, name: str, email: str) -> bytes:
    """Return the input for `git fast-import`: queries of directories, then the commit."""
    who = f"{_without_marks(name)} <{_without_marks(email)}> {int(time.time())} +0000"
    questions = "".join(f"ls {commit.start} {folder}\n" for folder in commit.plain.folders)
    head = (
        f'{questions}ls {commit.start} ""\n'
        f"commit {_BRANCH}\nmark :1\nauthor {who}\ncommitter {who}\n"
    )
    parts = [head.encode(), _data(commit.message.encode()), f"from {commit.start}\n".encode()]
    for file in commit.plain.files:
        mode = "100755" if file.executable else "100644"
        parts += [f"M {mode} inline {file.path}\n".encode(), _data(file.content)]
    return b"".join([*parts, b'\nget-mark :1\nls :1 ""\n'])


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _without_marks(text: str) -> str:
    """Return a name or e-mail address without characters that would end it in a commit."""
    # protection: plain-authors-name-cannot-contain-newline
    return "".join(
        character for character in text if character.isprintable() and character not in "<>"
    )
