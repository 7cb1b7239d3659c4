"""Read the files in which a container hands over a worker's commits; define an import's result."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import OrchestratorError
from orchestrator.files.safe_open import NotRegularError, open_regular
from orchestrator.text.sanitize import one_line

_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class HarvestRefusedError(OrchestratorError):
    """A worker's commits break a rule; none of them was imported."""


@dataclass(frozen=True)
class Harvested:
    """The result of importing a worker's commits."""

    tip: str
    """The commit that the worker's branch points at."""
    notes: tuple[str, ...]
    """Messages for the user about work that was left out or changed."""
    kept_refs: tuple[str, ...] = ()
    """Refs of the worker's commits that are not on its branch."""
    refused: str | None = None
    """Why some of the commits were refused; None if all were imported."""


def read_tip(out: Path) -> str:
    """Return the id of the last commit that the packing container handed over.

    Raises:
        HarvestRefusedError: The file does not contain a commit id.
    """
    tip = _read_text(out / "tip", 100)
    # protection: tip-must-be-object-id
    if not _OBJECT_ID.fullmatch(tip):
        raise HarvestRefusedError(
            "the worker's work was not handed over: the file `tip` has no commit id"
        )
    return tip


def open_handed_over(path: Path) -> BinaryIO:
    """Open a file that the packing container handed over, without following a link.

    Raises:
        HarvestRefusedError: The file is missing or not a regular file.
    """
    try:
        return open_regular(path)
    except NotRegularError as error:
        raise HarvestRefusedError(
            f"the worker's work was not handed over: `{path.name}` is not a regular file"
        ) from error
    except OSError as error:
        raise HarvestRefusedError(
            f"the worker's work was not handed over: the file `{path.name}` is missing"
        ) from error


def _read_text(path: Path, limit: int) -> str:
    with open_handed_over(path) as file:
        # protection: length-of-read-files-limited
        return file.read(limit).decode("utf-8", "replace").strip()


def read_notes(out: Path) -> tuple[str, ...]:
    """Return the packing container's messages about work that was left out."""
    try:
        notes = json.loads(_read_text(out / "notes", 64 * 1024))
    except HarvestRefusedError:
        return ()
    # protection: deeply-nested-notes-are-refused
    except (ValueError, RecursionError):
        notes = None
    # protection: notes-must-be-list
    if not isinstance(notes, list):
        return (
            "the notes on the worker's packed work are unreadable: files may have been left out",
        )
    # protection: notes-are-short-texts
    return tuple(one_line(note) for note in notes[:20] if isinstance(note, str))
