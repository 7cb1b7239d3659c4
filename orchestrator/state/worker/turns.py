"""The turns of a worker on disk. Every message after the task begins another turn.

    message-N                in the run's directory: a message that waits for the end of the turn
    worker-N/turn.json       the same file, moved: the message of the turn that follows
    worker-N/attempt.json    the result of the turn's last attempt; from now on, the turn is over
    worker-N.attempt-K/      the state directory of that attempt, once the next attempt is prepared

Moving the file is atomic, so no message is delivered twice.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.base.files.atomic import write_private
from orchestrator.state.run_directory import RunDirectory

_TURN = "turn.json"
_FIELDS_OF_RUN = frozenset({"timeout_per_worker", "budget_per_worker", "fix_checks"})
LONGEST_MESSAGE = 100 * 1024
"""Maximum size of a message in bytes."""
MOST_OF_SETTING = 10**9
"""Maximum time limit in seconds and maximum budget in USD, as in the settings of a run."""


class NextTurn(BaseModel):
    """The message that begins a turn, and the settings that were given with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message: str = Field(min_length=1)
    cause: Literal["user", "checks"] = "user"
    """Who wrote the message: the user, or this program because checks failed."""
    quotes: bool = False
    """Whether the message quotes others: comments, logs, or the output of checks."""
    model: str | None = None
    """The model from this turn on; None: as before."""
    timeout_per_worker: float | None = Field(default=None, ge=0, le=MOST_OF_SETTING)
    """Time limit in seconds from this turn on, 0 for none; None: as before."""
    budget_per_worker: float | None = Field(default=None, gt=0, le=MOST_OF_SETTING)
    """Maximum cost of all turns in USD, from this turn on; None: as before."""
    fix_checks: int | None = Field(default=None, ge=0, le=20)
    """Number of times that failed checks are sent back from this turn on; None: as before."""
    now: bool = False
    """Whether a running worker is stopped, so that it gets the message at once."""
    sources: tuple[str, ...] = Field(default=(), max_length=1000)
    """Names of the comments and jobs that the message quotes."""
    id: str = Field(default_factory=lambda: token_hex(8))
    """Tells messages with the same text apart."""

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of a run that were given with the message."""
        return self.model_dump(include=set(_FIELDS_OF_RUN), exclude_none=True)


@dataclass(frozen=True, kw_only=True)
class CurrentTurn:
    """The turn of a worker that is in progress, or was the last one."""

    number: int
    """Number of the turn; the second turn is the first that has a message."""
    begun_by: NextTurn
    given: NextTurn
    """The settings of all messages together: the latest value of each setting."""
    fixes: int
    """Number of turns without interruption, until this one, that failed checks have begun."""
    before: Path
    """State directory of the last attempt before the turn."""
    first_attempt: int
    """Number of the turn's first attempt."""


def current_turn(directory: RunDirectory, worker_id: int) -> CurrentTurn | None:
    """Return the turn that a worker is in, or was in at its end; None in its first turn."""
    places = [path for _, path in directory.attempts(worker_id)]
    latest = directory.worker(worker_id)
    if (latest / "attempt.json").exists() and not (latest / "result.json").exists():
        places.append(latest)
    found = [(place, turn) for place in places if (turn := turn_after(place)) is not None]
    if not found:
        return None
    given, fixes = found[0][1], 0
    for _, turn in found:
        given = given.model_copy(update=turn.model_dump(exclude_none=True))
        fixes = fixes + 1 if turn.cause == "checks" else 0
    before, latest_turn = found[-1]
    return CurrentTurn(
        number=len(found) + 1,
        begun_by=latest_turn,
        given=given,
        fixes=fixes,
        before=before,
        first_attempt=places.index(before) + 2,
    )


def turn_after(place: Path) -> NextTurn | None:
    """Return the turn that follows the attempt with this state directory; None if none follows."""
    try:
        return NextTurn.model_validate_json((place / _TURN).read_bytes())
    except (OSError, ValidationError):
        return None


def note_turn(place: Path, turn: NextTurn) -> None:
    """Record the turn that follows an attempt; it counts once the attempt's result is recorded."""
    write_private(place / _TURN, turn.model_dump_json().encode())


def queue_message(directory: RunDirectory, worker_id: int, turn: NextTurn) -> bool:
    """Leave a message for a worker, which the run's process delivers at the end of its turn.

    Returns:
        Whether no other message waits for the worker; if one does, nothing is changed.
    """
    queued = directory.message(worker_id)
    half = queued.with_name(f".{queued.name}.{turn.id}")
    write_private(half, turn.model_dump_json().encode())
    try:
        # protection: waiting-message-is-not-replaced
        os.link(half, queued)
    except FileExistsError:
        return False
    finally:
        half.unlink()
    return True


def is_queued(directory: RunDirectory, worker_id: int, turn: NextTurn | None = None) -> bool:
    """Return whether a message waits for a worker: any, or this one."""
    queued = directory.message(worker_id)
    if turn is None:
        return queued.exists()
    with suppress(OSError, ValidationError):
        return NextTurn.model_validate_json(queued.read_bytes()).id == turn.id
    return False


def withdraw_message(directory: RunDirectory, worker_id: int, turn: NextTurn) -> bool:
    """Remove a message; return whether it was not delivered until then."""
    if not is_queued(directory, worker_id, turn):
        return False
    with suppress(FileNotFoundError):
        directory.message(worker_id).unlink()
        return True
    return False


def delivered(directory: RunDirectory, worker_id: int) -> list[NextTurn]:
    """Return the delivered messages of a worker, oldest first; the first began its second turn."""
    # A message that is archived meanwhile is found in one of the two places.
    latest = turn_after(directory.worker(worker_id))
    turns = [found for _, path in directory.attempts(worker_id) if (found := turn_after(path))]
    return turns + ([latest] if latest is not None and latest not in turns else [])


def number_of(directory: RunDirectory, worker_id: int, turn: NextTurn) -> int | None:
    """Return the number of the turn that a message began; None if it began none."""
    turns = delivered(directory, worker_id)
    return next((n for n, found in enumerate(turns, start=2) if found.id == turn.id), None)


def take_message(directory: RunDirectory, worker_id: int) -> bool:
    """Move a worker's message, so that it begins the next turn; return whether there is one."""
    try:
        directory.message(worker_id).rename(directory.worker(worker_id) / _TURN)
    except OSError:
        return False
    # The request to stop ended the turn before.
    directory.forget_stop(worker_id)
    return True


def drop_turn(place: Path) -> None:
    """Remove the record of a turn that never began."""
    (place / _TURN).unlink(missing_ok=True)
