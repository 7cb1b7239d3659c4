"""Look for secrets in what a worker committed, to warn: the branch may be on its way to others."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.redact import Redactor
from orchestrator.repository import Repository
from orchestrator.sanitize import one_line

MAX_OBJECTS = 5000
MAX_OBJECT = 1024**2
"""Bytes of a file that is looked at; keys are not in larger ones as a rule."""
MAX_BYTES = 64 * 1024**2
_BATCH = 8 * 1024**2
_LOOKED_AT = (b"blob", b"commit")


@dataclass(frozen=True)
class _Object:
    id: bytes
    path: str
    size: int


def leaks(repository: Repository, redactor: Redactor, *, base: str, tip: str) -> dict[str, str]:
    """Find where the new commits hold a value: by its name, the first path that has it.

    Args:
        repository: Where the commits are, checked and let in.
        redactor: What knows the values.
        base: The commit the worker started from.
        tip: The commit that its branch points at.
    """
    found: dict[str, str] = {}
    if redactor.has_values and tip != base:
        for path, content in _contents(repository, base, tip):
            for name in redactor.names_in(content):
                found.setdefault(name, redactor.text(path))
    return found


def leak_notes(found: dict[str, str], branch: str) -> tuple[str, ...]:
    """Say it to people."""
    return tuple(
        f"`{branch}` holds the value of `{name}` in {one_line(path)}"
        for name, path in sorted(found.items())
    )


def _contents(repository: Repository, base: str, tip: str) -> Iterator[tuple[str, bytes]]:
    batch: list[_Object] = []
    for item in _new_objects(repository, base, tip):
        if sum(held.size for held in batch) + item.size > _BATCH:
            yield from _read(repository, batch)
            batch = []
        batch.append(item)
    yield from _read(repository, batch)


def _new_objects(repository: Repository, base: str, tip: str) -> Iterator[_Object]:
    """List commits and small files that are new, as many as are looked at."""
    listing = repository.git.run("rev-list", "--objects", tip, f"^{base}").splitlines()
    paths = dict(line.partition(b" ")[::2] for line in listing[:MAX_OBJECTS])
    asked = b"".join(object_id + b"\n" for object_id in paths)
    answer = repository.git.run("cat-file", "--batch-check", "--buffer", stdin=asked)
    room = MAX_BYTES
    for line in answer.splitlines():
        object_id, kind, size = line.split(b" ")
        if kind in _LOOKED_AT and int(size) <= min(MAX_OBJECT, room):
            room -= int(size)
            path = paths[object_id].decode("utf-8", "replace") or "a commit's message"
            yield _Object(object_id, path, int(size))


def _read(repository: Repository, batch: list[_Object]) -> Iterator[tuple[str, bytes]]:
    if not batch:
        return
    asked = b"".join(item.id + b"\n" for item in batch)
    answer = repository.git.run("cat-file", "--batch", "--buffer", stdin=asked)
    place = 0
    for item in batch:
        place = answer.index(b"\n", place) + 1
        yield item.path, answer[place : place + item.size]
        place += item.size + 1
