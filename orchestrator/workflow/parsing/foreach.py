"""`foreach`: from where its items come, and how many tasks they make. Pure: others read and run."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.errors import ConfigError
from orchestrator.text.path_patterns import matching
from orchestrator.text.sanitize import one_line
from orchestrator.workflow.model import MOST_TASKS
from orchestrator.workflow.parsing.manifest import Foreach

LONGEST_ITEM = 4096


@dataclass(frozen=True)
class Source:
    """Where the items of one task come from."""

    task: str
    """The task's id."""
    kind: Literal["glob", "json", "command"]
    values: tuple[str, ...]
    """Its patterns; or the one file or command."""


Expand = Callable[[Source], Sequence[str] | None]
"""Gives a source's items; None leaves its task as it is, one task for all that it will be. What
it cannot read or run it raises as a `ConfigError`."""


def unexpanded(source: Source) -> None:
    """Leave every task that is not made from a list as it is."""


def expander(
    *,
    files: Callable[[], Iterable[str]],
    read: Callable[[str], bytes | None],
    run: Callable[[str], str] | None,
) -> Expand:
    """Make what expands from a commit.

    Args:
        files: Gives the paths of all its files, with `/`.
        read: Gives a file's content; None when there is none.
        run: Gives what a command prints; without it, such tasks are left as they are.
    """

    def expand(source: Source) -> Sequence[str] | None:
        match source.kind:
            case "glob":
                return matching(files(), source.values)
            case "json":
                return _items_in(read(source.values[0]), source.values[0])
            case "command":
                return None if run is None else items_of_lines(run(source.values[0]))

    return expand


def items_of_lines(text: str) -> list[str]:
    """Return a command's lines; empty ones are none."""
    return [line for line in (line.strip() for line in text.splitlines()) if line]


def _items_in(content: bytes | None, path: str) -> list[str]:
    if content is None:
        raise ConfigError(f"`{path}` is not in the commit that the run starts from")
    try:
        found = json.loads(content)
        spelled = json.loads(content, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"`{path}` is not JSON: {error}") from error
    if not isinstance(found, list):
        raise ConfigError(f"`{path}` does not hold a list")
    return [
        as_text(text if isinstance(item, (int, float)) else item)
        for item, text in zip(found, spelled, strict=True)
    ]


def as_text(item: object) -> str:
    """Return an item or a variable as texts hold it."""
    return item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)


def source_of(foreach: Foreach, task: str) -> Source | None:
    """Return where items come from; None when they are there already."""
    if foreach.glob is not None:
        return Source(task, "glob", foreach.glob)
    if foreach.json_file is not None:
        return Source(task, "json", (foreach.json_file,))
    return Source(task, "command", (foreach.command,)) if foreach.command is not None else None


def batches(items: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Group items, `size` to a task.

    Raises:
        ConfigError: An item cannot be used, or there are too many.
    """
    for item in items:
        _check(item, alone=size == 1)
    count = -(-len(items) // size)
    if count > MOST_TASKS:
        fitting = -(-len(items) // MOST_TASKS)
        raise ConfigError(
            f"{len(items)} items make {count} tasks, more than {MOST_TASKS}: "
            f"give `batch: {fitting}` or more"
        )
    return [tuple(items[start : start + size]) for start in range(0, len(items), size)]


def _check(item: str, *, alone: bool) -> None:
    shown = f"the item `{one_line(item, limit=60)}`"
    if not item.strip():
        raise ConfigError("an item is empty")
    if len(item) > LONGEST_ITEM:
        raise ConfigError(f"{shown} is longer than {LONGEST_ITEM} characters")
    if "\0" in item or any("\ud800" <= character <= "\udfff" for character in item):
        raise ConfigError(f"{shown} holds NUL or is not Unicode")
    if not alone and len(item.splitlines()) > 1:
        raise ConfigError(f"{shown} has more than one line, which `batch` cannot tell apart")


def values_of(batch: Sequence[str], index: int) -> Mapping[str, tuple[str, ...]]:
    """Return what the templates of one batch stand for."""
    one = {"item": (batch[0],)} if len(batch) == 1 else {}
    return {**one, "items": tuple(batch), "index": (str(index),)}
