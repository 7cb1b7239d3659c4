"""Snapshots: what a sandbox has written, and how it was made, for other sandboxes to begin with."""

import math
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.base.errors import ConfigError, NotRunningError
from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.user_state import state_home
from orchestrator.config.settings.values import Model
from orchestrator.engine.places.in_place.archive import ArchiveError, pack
from orchestrator.sandbox.models import Template

_ABOUT, _FILES = "snapshot.json", "workspace.tar"
_PIECE = 1024**2
_MOST = 10**7
SnapshotName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
_NAME: TypeAdapter[str] = TypeAdapter(SnapshotName)


class Snapshot(Model):
    """The files of a workspace at one moment, and the template of its sandbox.

    What is in `/tmp` and in the home directory is in memory, and in no snapshot.
    """

    name: SnapshotName
    template: Template
    created_at: datetime
    size: int
    """Bytes on this machine's disk."""


def _parent() -> Path:
    return state_home() / "sandbox-snapshots"


def take(name: str | None, template: Template, workspace: Path) -> Snapshot:
    """Keep the files of a workspace under a name, which gets them all or none of them.

    Raises:
        ConfigError: The name is not usable or taken, or the files cannot be kept.
    """
    chosen = name or f"snapshot-{secrets.token_hex(4)}"
    try:
        _NAME.validate_python(chosen)
    except ValidationError as error:
        raise ConfigError(
            f"a snapshot cannot be called {chosen!r}: at most 63 lower-case letters, digits, "
            "`.`, `_` and `-`",
            key="sandbox.snapshot-name",
        ) from error
    place, half = _parent() / chosen, _parent() / f".{secrets.token_hex(8)}"
    try:
        half.mkdir(parents=True, mode=0o700)
        with (half / _FILES).open("xb") as file:
            # Links are kept as links; they lead nowhere but in the next sandbox.
            for piece in pack(workspace, limit=math.inf, most=_MOST, top="."):
                file.write(piece)
            size = file.tell()
        snapshot = Snapshot(name=chosen, template=template, created_at=datetime.now(UTC), size=size)
        write_private(half / _ABOUT, snapshot.model_dump_json().encode())
        # protection: snapshot-is-not-replaced
        if place.exists():
            raise ConfigError(
                f"there is a snapshot `{chosen}` already", key="sandbox.snapshot-exists",
                hint="choose another name, or remove it with `Sandbox.remove_snapshot`",
            )  # fmt: skip
        half.rename(place)
    except (OSError, ArchiveError) as error:
        raise ConfigError(
            f"the snapshot `{chosen}` cannot be kept: {error}", key="sandbox.snapshot-failed"
        ) from error
    finally:
        remove_tree(half)
    return snapshot


def find(name: str) -> Snapshot:
    """Return a snapshot.

    Raises:
        NotRunningError: There is none of this name.
    """
    for snapshot in every():
        if snapshot.name == name:
            return snapshot
    raise NotRunningError(f"there is no snapshot `{name}`", key="sandbox.no-snapshot")


def every() -> list[Snapshot]:
    """Return the snapshots of this user, oldest first."""
    found = []
    parent = _parent()
    for path in parent.iterdir() if parent.is_dir() else ():
        try:
            found.append(Snapshot.model_validate_json((path / _ABOUT).read_bytes()))
        except (OSError, ValidationError):
            continue  # it is being made or removed
    return sorted(found, key=lambda snapshot: snapshot.created_at)


def pieces(name: str) -> Iterator[bytes]:
    """Yield the archive of a snapshot's files."""
    with (_parent() / name / _FILES).open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def remove(name: str) -> None:
    """Remove a snapshot.

    Raises:
        NotRunningError: There is none of this name.
    """
    place = _parent() / find(name).name
    gone = place.with_name(f".{secrets.token_hex(8)}")
    place.replace(gone)
    remove_tree(gone)
