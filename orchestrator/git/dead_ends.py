"""Name the parts of a commit whose content no worker can see."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice

from orchestrator.errors import GitCommandError
from orchestrator.git.command import Git
from orchestrator.git.repository import Repository
from orchestrator.git.submodules import named_submodules
from orchestrator.text.sanitize import one_line
from orchestrator.text.split_lines import split_lines

_GITLINK, _LINK = b"160000 commit ", b"120000 blob "
_MOST = 1000
"""Maximum number of links whose targets are read."""
_LONGEST = 4096
_SHOWN = 5


def dead_ends(repository: Repository, commit: str) -> Iterator[str]:
    """Yield notices about repositories without `.gitmodules`, and links with absolute targets.

    Raises:
        GitCommandError: The commit cannot be read.
    """
    entries = [
        entry for entry in repository.git.tree(commit) if entry.startswith((_GITLINK, _LINK))
    ]
    links = [entry.removeprefix(_LINK) for entry in entries if entry.startswith(_LINK)]
    inner = [
        os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry.startswith(_GITLINK)
    ]
    named = named_submodules(repository.git, commit) if inner else {}
    if unnamed := [path for path in inner if path not in named]:
        yield (
            f"separate repositories are committed that `.gitmodules` does not name: "
            f"{_some(unnamed)}; workers get empty directories, and what they write there is not "
            "committed"
        )
    if away := list(_absolute(repository.git, links)):
        yield f"committed links lead out of the repository: {_some(away)}; workers see no target"


def _absolute(git: Git, links: Sequence[bytes]) -> Iterator[str]:
    paths: dict[str, list[str]] = {}
    for found, _, path in islice((link.partition(b"\t") for link in links), _MOST):
        paths.setdefault(found.decode(), []).append(os.fsdecode(path))
    if not paths:
        return
    try:
        sized = split_lines(git.text("cat-file", "--batch-check", stdin=_lines(paths)))
        short = [line.split()[0] for line in sized if _is_short(line)]
        answer = git.run("cat-file", "--batch", stdin=_lines(short))
    except GitCommandError:
        # A partial clone lacks objects; the run names what it needs of them.
        return
    for name in short:
        header, _, answer = answer.partition(b"\n")
        size = int(header.split()[2])
        target, answer = os.fsdecode(answer[:size]), answer[size + 1 :]
        if target.startswith("/"):
            yield from (f"{path} -> {target}" for path in paths[name])


def _lines(names: Sequence[str] | dict[str, list[str]]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _is_short(line: str) -> bool:
    kind, _, size = line.partition(" ")[2].partition(" ")
    return kind == "blob" and int(size) <= _LONGEST


def _some(paths: Sequence[str]) -> str:
    shown = ", ".join(f"`{one_line(path, limit=100)}`" for path in paths[:_SHOWN])
    rest = len(paths) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown
