"""Comments on lines of a worker's diff: kept in the run's directory, and sent as one message."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.text.sanitize import lines
from orchestrator.faces.web.commands import Commands, Values
from orchestrator.faces.web.diffs import Diff, worker_diff
from orchestrator.faces.web.form_pages import Asked, place_of, start
from orchestrator.faces.web.forms import continue_form, takes_commands
from orchestrator.faces.web.rendering import path_of
from orchestrator.faces.web.view import View
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.worker.turns import LONGEST_MESSAGE

LONGEST = 4000
"""Maximum number of characters of a comment."""
_MOST = 500
"""Maximum number of comments on a worker's diff; those that were sent make room."""
_MOST_BYTES = 8 * 1024**2
_LONGEST_CODE = 300
Side = Literal["old", "new"]


class Comment(BaseModel):
    """A comment on a line of a diff."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(max_length=1000)
    """The file, as the page shows its path."""
    side: Side
    """`old` for a line that was removed."""
    line: int = Field(ge=1, le=10**9)
    code: str = Field(max_length=_LONGEST_CODE)
    """The commented line."""
    text: str = Field(max_length=LONGEST)
    sent: bool = False

    @property
    def id(self) -> str:
        """Name of the comment in forms: two equal comments are one."""
        parts = (self.path, self.side, str(self.line), self.code, self.text)
        return sha256("\0".join(parts).encode()).hexdigest()[:16]


_COMMENTS = TypeAdapter(tuple[Comment, ...])


def read_comments(directory: RunDirectory, worker_id: int) -> tuple[Comment, ...]:
    """Return the comments on a worker's diff; none if they are unreadable."""
    try:
        return _COMMENTS.validate_json(
            read_limited(_file(directory, worker_id), most=_MOST_BYTES)
        )  # fmt: skip
    except (OSError, ValidationError):
        return ()


def comment_values(view: View, worker: WorkerView, diff: Diff) -> dict[str, object]:
    """Return the template variables of the comments on a worker's diff."""
    comments = read_comments(view.run.directory, worker.worker_id)
    shown = {
        (file.path, "old" if line.new is None else "new", line.new or line.old, _code(line.text))
        for file in diff.files
        for line in file.lines
    }
    at: dict[tuple[str, str, int], list[Comment]] = {}
    for note in comments:
        if (note.path, note.side, note.line, note.code) in shown:
            at.setdefault((note.path, note.side, note.line), []).append(note)
    placed = {note.id for some in at.values() for note in some}
    return {
        "said": at,
        "unsent": sum(not note.sent for note in comments),
        # The lines of these are not in the diff any more, but they are sent with the others.
        "elsewhere": [note for note in comments if not note.sent and note.id not in placed],
        "can_comment": continue_form(view, worker) is not None and not takes_commands(view, worker),
        "longest": LONGEST,
    }


def change_comments(commands: Commands, view: View, worker: WorkerView, given: Values) -> str:
    """Add, remove or send comments on a worker's diff, and return the address to show next.

    Raises:
        OrchestratorError: There is no such line, or the message cannot be sent.
    """
    directory, number, how = view.run.directory, worker.worker_id, _one(given, "how")
    page, text = path_of(view.run.repository, view.snapshot.run_id, number, "diff"), _one(
        given, "text"
    )  # fmt: skip
    if how not in ("add", "remove", "send"):
        raise ConfigError("the form has an unknown value", key="form.invalid")
    with view.repository.lock():
        comments = {note.id: note for note in read_comments(directory, number)}
        if how == "remove":
            comments.pop(_one(given, "comment"), None)
        elif text.strip() or how == "add":
            new = _comment_on(worker_diff(view, worker), given, text)
            page += f"#f{_number(given, 'file')}"
            comments[new.id] = new
        _write(directory, number, [*comments.values()])
    if how == "send":
        return _send(commands, view, worker, _one(given, "once"))
    return page


def _send(commands: Commands, view: View, worker: WorkerView, once: str) -> str:
    directory, number = view.run.directory, worker.worker_id
    form, comments = continue_form(view, worker), read_comments(directory, number)
    unsent = [note for note in comments if not note.sent]
    if form is None or not unsent:
        raise ConfigError(
            "there is no comment to send, or the worker cannot continue", key="comments.none"
        )
    # A message for this program would run as a command.
    # protection: comments-are-not-run-as-commands
    if takes_commands(view, worker):
        raise ConfigError(
            "the program of this worker takes commands, not comments",
            key="comments.not-understood",
            hint="use `Continue`, with the next command as the message",
        )
    asked = Asked(form, view.repository, place_of(view, number), run=directory)
    given = {"message": (message_of(unsent),), "once": (once,)}
    job, address = start(commands, asked, given)
    if job.code in (None, *form.good):
        sent = {note.id for note in unsent}
        with view.repository.lock():
            _write(directory, number, [
                note.model_copy(update={"sent": True}) if note.id in sent else note
                for note in read_comments(directory, number)
            ])  # fmt: skip
    return address


def _comment_on(diff: Diff, given: Values, text: str) -> Comment:
    clean = lines(text).strip()
    # protection: comments-are-bounded
    if not clean or len(clean) > LONGEST:
        raise ConfigError(
            f"a comment has 1 to {LONGEST} characters", key="comment.length"
        )  # fmt: skip
    file, side, number = _number(given, "file"), _one(given, "side"), _number(given, "line")
    shown = diff.files[file - 1] if 0 < file <= len(diff.files) else None
    for line in shown.lines if shown else ():
        if shown and number and (line.old if side == "old" else line.new) == number:
            # A line that was not changed is named as the new file has it.
            new = line.new is not None
            return Comment(
                path=shown.path, side="new" if new else "old", line=line.new or number,
                code=_code(line.text), text=clean,
            )  # fmt: skip
    raise ConfigError(
        "the diff shows no such line: choose the number of a line on the page", key="comment.line"
    )


def message_of(comments: Sequence[Comment]) -> str:
    """Return comments as one message for the worker: file, line and code of each."""
    parts = ["Comments on your changes:"]
    for note in comments:
        where = f"{note.path}:{note.line}" + (" (removed line)" if note.side == "old" else "")
        parts.append(f"{where}\n> {note.code}\n{note.text}")
    return "\n\n".join(parts)


def _write(directory: RunDirectory, worker_id: int, comments: Sequence[Comment]) -> None:
    unsent = [note for note in comments if not note.sent]
    sent = [note for note in comments if note.sent]
    # protection: comments-fit-in-one-message
    if len(unsent) > _MOST or len(message_of(unsent).encode()) > LONGEST_MESSAGE:
        raise ConfigError(
            "the comments would not fit in one message: send them, or remove some",
            key="comments.too-many",
        )
    kept = [*sent[max(0, len(comments) - _MOST) :], *unsent]
    write_private(_file(directory, worker_id), _COMMENTS.dump_json(tuple(kept), indent=2))


def _file(directory: RunDirectory, worker_id: int) -> Path:
    return directory.path / f"comments-{worker_id}.json"


def _code(text: str) -> str:
    return text[:_LONGEST_CODE]


def _one(given: Values, name: str) -> str:
    return next(iter(given.get(name, ())), "")


def _number(given: Values, name: str) -> int:
    text = _one(given, name)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
