"""Determine the tasks of a `foreach`: where its items come from, and how they are grouped."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.path_patterns import matching
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.config.workflow.model import MOST_TASKS
from orchestrator.config.workflow.parsing.manifest import Foreach

LONGEST_ITEM = 4096


@dataclass(frozen=True)
class Source:
    """Where the items of a `foreach` task come from: files, a JSON file, or a command."""

    kind: Literal["glob", "json", "command"]
    values: tuple[str, ...]
    """Patterns of the files; or the name of the single JSON file; or the command."""


Expand = Callable[[Source], Sequence[str] | None]
"""Function that returns the items from a source; None if they are not known yet, so that a single
task takes their place. It raises `ConfigError` if the source cannot be read or run.
"""


def leave_open(source: Source) -> None:
    """Return None for every source, so that only items listed in the workflow file are known."""


def expander(
    *,
    files: Callable[[], Iterable[str]],
    read: Callable[[str], bytes | None],
    run: Callable[[str], str] | None,
) -> Expand:
    """Return a function that returns the items of a `foreach` task.

    Args:
        files: Function that returns the paths of all files of the run's base commit.
        read: Function that returns the content of a file of the base commit; None if the file does
            not exist.
        run: Function that returns the output of a command. None: no command is run, and the items
            of commands stay unknown.
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
    """Return the items that a command printed: separated by NUL if it printed any, else lines."""
    if "\0" in text:
        return [item for item in text.split("\0") if item.strip("\n")]
    return [line for line in (line.strip(" \t\r") for line in split_lines(text)) if line]


def _items_in(content: bytes | None, path: str) -> list[str]:
    if content is None:
        raise ConfigError(
            f"the file `{path}` of `foreach` does not exist in the commit that the run starts from",
            key="foreach.file-missing",
        )
    try:
        items = json.loads(content)
        spelled = json.loads(content, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"the file `{path}` of `foreach` is not JSON: {error}", key="foreach.invalid-json"
        ) from error
    if not isinstance(items, list):
        raise ConfigError(
            f"the file `{path}` of `foreach` does not contain a list", key="foreach.no-list"
        )
    return [
        as_text(text if isinstance(item, (int, float)) else item)
        for item, text in zip(items, spelled, strict=True)
    ]


def as_text(item: object) -> str:
    """Return an item or a variable's value as text for a template."""
    return item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)


def source_of(foreach: Foreach) -> Source | None:
    """Return the source of a `foreach` task's items; None if the workflow file has the items."""
    if foreach.glob is not None:
        return Source("glob", foreach.glob)
    if foreach.json_file is not None:
        return Source("json", (foreach.json_file,))
    return Source("command", (foreach.command,)) if foreach.command is not None else None


def batches(items: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Return groups of at most `size` items; a task is created for each group.

    Raises:
        ConfigError: An item is invalid, or there are too many items.
    """
    for item in items:
        shown = f"the item `{one_line(item, limit=60)}`"
        if not item.strip():
            raise ConfigError("an item of `foreach` is empty", key="foreach.item-empty")
        if len(item) > LONGEST_ITEM:
            raise ConfigError(
                f"{shown} is longer than {LONGEST_ITEM} characters", key="foreach.item-too-long"
            )
        if "\0" in item or any("\ud800" <= character <= "\udfff" for character in item):
            raise ConfigError(
                f"{shown} contains NUL or is not valid Unicode", key="foreach.item-invalid"
            )
        if size > 1 and len(split_lines(item)) > 1:
            raise ConfigError(
                f"{shown} has more than one line, which `batch` cannot separate from other items",
                key="foreach.item-lines",
            )
    count = -(-len(items) // size)
    if count > MOST_TASKS:
        fitting = -(-len(items) // MOST_TASKS)
        raise ConfigError(
            f"{len(items)} items make {count} tasks, more than {MOST_TASKS}: "
            f"set `batch: {fitting}` or more",
            key="foreach.too-many",
        )
    return [tuple(items[start : start + size]) for start in range(0, len(items), size)]


def values_of(batch: Sequence[str], index: int) -> Mapping[str, tuple[str, ...]]:
    """Return the values of the template variables for the task of one group of items."""
    single = {"item": (batch[0],)} if len(batch) == 1 else {}
    return {**single, "items": tuple(batch), "index": (str(index),)}
