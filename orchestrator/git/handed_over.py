"""Read the output files of a harvest's container, and represent the result of a harvest."""

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
    """A harvest broke a rule; nothing of it was imported."""


@dataclass(frozen=True)
class Harvested:
    """Result of importing a worker's harvest."""

    tip: str
    """The commit that the worker's branch points at."""
    notes: tuple[str, ...]
    """Messages for people about what was left out or changed."""
    kept_refs: tuple[str, ...] = ()
    """Refs of commits that the branch does not reach."""
    refused: str | None = None
    """Reason why part of the harvest was refused; None if all of it was imported."""


def read_tip(out: Path) -> str:
    """Return the commit id that the harvest's helper container wrote.

    Raises:
        HarvestRefusedError: The file holds no commit id.
    """
    tip = _read_text(out / "tip", 100)
    if not _OBJECT_ID.fullmatch(tip):
        raise HarvestRefusedError("the harvest contains no commit id")
    return tip


def open_handed_over(path: Path) -> BinaryIO:
    """Open a file from the harvest's helper container without following a link.

    Raises:
        HarvestRefusedError: The file is missing or not a regular file.
    """
    try:
        return open_regular(path)
    except NotRegularError as error:
        raise HarvestRefusedError(f"`{path.name}` of the harvest is not a regular file") from error
    except OSError as error:
        raise HarvestRefusedError(f"the harvest has no `{path.name}`") from error


def _read_text(path: Path, limit: int) -> str:
    with open_handed_over(path) as file:
        return file.read(limit).decode("utf-8", "replace").strip()


def read_notes(out: Path) -> tuple[str, ...]:
    """Return the messages of the helper container about what was left out."""
    try:
        notes = json.loads(_read_text(out / "notes", 64 * 1024))
    except HarvestRefusedError:
        return ()
    except (ValueError, RecursionError):
        notes = None
    if not isinstance(notes, list):
        return ("the harvest's notes are unreadable: files may have been left out",)
    return tuple(one_line(note) for note in notes[:20] if isinstance(note, str))
