"""Start commands of `orchestrator` from forms, in processes that outlive the web view.

A form fills in the arguments of a command, and shows the command line that it starts. Settings are
checked by the command itself, as in a terminal.
"""

import hmac
import itertools
import os
import re
import secrets
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from orchestrator.base.errors import ConfigError
from orchestrator.base.machine import own_command
from orchestrator.base.text.sanitize import output_lines
from orchestrator.faces.web.view import View
from orchestrator.state.record.worker_view import WorkerView

Kind = Literal["text", "number", "choice", "lines", "tasks", "message", "workers", "switch"]
Values = Mapping[str, Sequence[str]]
"""Values of the fields of a form that a browser sent, by the fields' names."""
PATIENCE = 5.0
"""Seconds for which a browser waits for the end of a command before it sees a page about it."""
_LONGEST_PREVIEW = 60.0
_MOST_SHOWN = 64 * 1024
"""Maximum number of bytes of a command's output that a page shows."""
_MOST_KEPT = 50
"""Maximum number of commands whose output is kept."""
_MOST_RUNNING = 8
_COLUMNS = "100"
_TICK = 0.1
"""Seconds between two looks at what a command has printed."""
_RUN_ID = re.compile(rb'"run_id": ?"([0-9]{8}-[0-9]{6}-[0-9a-f]{6})"')
"""The id of a run in the JSON that a command prints first."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a form: an option or argument of a command."""

    name: str
    label: str
    flag: str = ""
    """Name of the option; empty for an argument."""
    kind: Kind = "text"
    help: str = ""
    choices: tuple[str, ...] = ()
    """The values of a choice, besides the one that is not an option."""
    values: tuple[str, ...] = ()
    """What the field contains before the user changes it."""

    def texts(self, given: Values) -> list[str]:
        """Return the values that are not blank.

        Raises:
            ConfigError: A value contains a character that no command line can have.
        """
        texts = [text.replace("\r\n", "\n") for text in given.get(self.name, ())]
        if self.kind == "lines":
            texts = [line.strip() for text in texts for line in text.split("\n")]
        found = [text for text in texts if text.strip()]
        # protection: values-of-forms-cannot-be-arguments
        if any("\0" in text for text in found):
            raise ConfigError(
                f"field `{self.label}` contains a character that no command accepts",
                key="form.invalid",
            )
        return found

    def words(self, given: Values) -> list[str]:
        """Return the words that the field adds to the command line."""
        found = self.texts(given)
        if self.kind == "switch":
            return [self.flag] if found else []
        if self.kind == "workers":
            # protection: workers-of-forms-are-numbers
            return [text for text in found if text.isascii() and text.isdecimal()]
        if self.kind == "choice":
            found = [text for text in found if text in self.choices]
        # Joined to its option, no value can be taken for another option.
        # protection: values-of-forms-cannot-be-options
        return [f"{self.flag}={text}" for text in found]


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form that starts a command."""

    name: str
    """Last part of the form's address."""
    title: str
    button: str
    words: tuple[str, ...]
    """The first words of the command line, without the fields."""
    fields: tuple[Field, ...] = ()
    lines: tuple[str, ...] = ()
    """What the command will do, in sentences."""
    tone: Literal["primary", "danger"] = "primary"
    preview: bool = False
    """Whether the command is only started after its output with `--dry-run` was shown."""
    quiet: tuple[str, ...] = ()
    """Words that the started command gets besides those that the page shows."""
    after: str = ""
    """Last part of the address of the run's page to show after the command; see `Job.target`."""
    goes_on: bool = False
    """Whether the run's page shows the command's progress."""
    shows_output: bool = False
    """Whether only the command's output shows what it did."""
    good: tuple[int, ...] = (0,)
    """Exit codes of a command that did what it was asked for."""

    def command(self, given: Values) -> list[str]:
        """Return the words of the command line after the program's name.

        Raises:
            ConfigError: A value contains a character that no command line can have.
        """
        return [*self.words, *(word for item in self.fields for word in item.words(given))]

    def line(self, given: Values) -> str:
        """Return the command line, to be copied to a terminal."""
        return shlex.join(["orchestrator", *self.command(given)])

    def line_to_record(self, given: Values) -> str:
        """Return the command line without messages, which may contain secrets."""
        # protection: messages-are-not-recorded-by-web-view
        return self.line(self._without_messages(given))

    def started(self, given: Values) -> tuple[list[str], str]:
        """Return the words of the command that is started, and the message for its stdin.

        Other users of the machine can read the words of a command.
        """
        messages = [item for item in self.fields if item.kind == "message"]
        said = [text for item in messages for text in item.texts(given)]
        # protection: messages-are-not-arguments
        words = self.command(self._without_messages(given))
        return [*words, *(["--message-file=-"] if said else []), *self.quiet], "".join(said[-1:])

    def _without_messages(self, given: Values) -> Values:
        messages = {item.name for item in self.fields if item.kind == "message"}
        return {name: texts for name, texts in given.items() if name not in messages}


@dataclass(kw_only=True)
class Job:
    """A command that a browser started."""

    number: int
    form: Form
    line: str
    run_id: str | None
    """The run from whose page the command was started."""
    process: "subprocess.Popen[bytes]"
    out: IO[bytes]
    errors: IO[bytes]
    said: tuple[str, str] = ("", "")
    """The end of what the command printed on stdout and stderr."""
    found: str | None = None
    """The run that the command has started, once it is known."""
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def code(self) -> int | None:
        """The exit code of the command; None while it is in progress."""
        return self.process.returncode if self.ended.is_set() else None

    @property
    def output(self) -> str:
        """The end of the command's output, stderr first, safe to show."""
        with self.lock:
            if not self.ended.is_set():
                self.said = _end_of(self.out), _end_of(self.errors)
            out, errors = self.said
        return "\n".join(part for part in (errors, "" if self.form.quiet else out) if part)

    @property
    def new_run(self) -> str | None:
        """The run that the command has started; None if it starts none, or has not yet."""
        with self.lock:
            if self.form.quiet and self.found is None and not self.ended.is_set():
                match = _RUN_ID.search(os.pread(self.out.fileno(), _MOST_SHOWN, 0))
                self.found = match[1].decode() if match else None
            return self.found

    def wait(self) -> None:
        """Wait for the end of the command, and keep what its pages show."""
        self.process.wait()
        # What was printed last is read before the files are closed.
        _ = self.output, self.new_run
        with self.lock:
            self.ended.set()
            self.out.close()
            self.errors.close()

    @property
    def target(self) -> tuple[str | None, str]:
        """The run and the page of the run that shows what the command did."""
        return (self.new_run, "") if self.form.quiet else (self.run_id, self.form.after)

    @property
    def is_good(self) -> bool:
        """Whether the command did what it was asked for."""
        return self.new_run is not None or self.code in self.form.good


class Commands:
    """Starts commands, and remembers the latest. Thread-safe."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._used: set[str] = set()
        self._jobs: dict[int, Job] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def job(self, number: int) -> Job | None:
        """Return a command by its number; None if it is not remembered."""
        return self._jobs.get(number)

    def ticket(self) -> str:
        """Return a text for a page: its forms start at most one command."""
        name = secrets.token_hex(8)
        return f"{name}{self._sign(name)}"

    def _sign(self, name: str) -> str:
        return hmac.new(self._secret, name.encode(), "sha256").hexdigest()[:32]

    def _check(self, ticket: str) -> None:
        name, sign = ticket[:16], ticket[16:]
        good = ticket.isascii() and hmac.compare_digest(sign, self._sign(name))
        # A second click, `Back`, or a copy of the request would start the command again.
        # protection: forms-start-one-command
        if not good or ticket in self._used:
            raise ConfigError(
                "this form was sent already, or is older than the web view",
                key="form.used",
                hint="see what the command did before you send the form again",
            )

    def preview(self, form: Form, given: Values, top: Path) -> tuple[int, str]:
        """Return the exit code and the output of a command with `--dry-run`.

        Raises:
            ConfigError: The command takes too long, or a value is not possible.
        """
        words = [*form.command(given), "--dry-run"]
        try:
            done = subprocess.run(  # noqa: S603
                own_command(*words), cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=_environ(), timeout=_LONGEST_PREVIEW, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ConfigError(
                f"`{form.words[0]} --dry-run` took longer than {_LONGEST_PREVIEW:.0f} seconds",
                key="preview.too-slow",
                hint="use the command in a terminal",
            ) from None
        return done.returncode, _shown(done.stdout[-_MOST_SHOWN:])

    def start(self, form: Form, given: Values, top: Path, *, run_id: str | None = None) -> Job:
        """Start a command, and wait a moment for its end.

        Args:
            form: The form.
            given: The values of its fields.
            top: The directory in which the command runs.
            run_id: The run from whose page the command is started.

        Raises:
            ConfigError: Too many commands are in progress, a value is not possible, or the form was
                sent already.
        """
        ticket = next(iter(given.get("once", ())), "")
        with self._lock:
            self._check(ticket)
            # protection: commands-of-browsers-are-bounded
            if sum(job.code is None for job in self._jobs.values()) >= _MOST_RUNNING:
                raise ConfigError(
                    f"{_MOST_RUNNING} commands are in progress: wait for their end",
                    key="command.too-many",
                )
            job = self._start(form, given, top, run_id)
            self._used.add(ticket)
            self._jobs[job.number] = job
            for old in [n for n, item in self._jobs.items() if item.code is not None][:-_MOST_KEPT]:
                self._jobs.pop(old)
        threading.Thread(target=job.wait, daemon=True).start()
        until = time.monotonic() + PATIENCE
        while not job.ended.wait(_TICK) and time.monotonic() < until and job.new_run is None:
            pass
        return job

    def _start(self, form: Form, given: Values, top: Path, run_id: str | None) -> Job:
        # Files without names: nothing is left of them, however this process ends.
        out, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        words, message = form.started(given)
        with tempfile.TemporaryFile() as stdin:
            stdin.write(message.encode("utf-8", "replace"))
            stdin.seek(0)
            process = subprocess.Popen(  # noqa: S603
                own_command(*words), cwd=top, stdin=stdin, stdout=out, stderr=errors,
                env=_environ(), start_new_session=True,
            )  # fmt: skip
        return Job(
            number=next(self._numbers), form=form, line=form.line(given), run_id=run_id,
            process=process, out=out, errors=errors,
        )  # fmt: skip


def _environ() -> Mapping[str, str]:
    return {**os.environ, "COLUMNS": _COLUMNS, "NO_COLOR": "1", "PAGER": "cat"}


def _end_of(file: IO[bytes]) -> str:
    size = os.fstat(file.fileno()).st_size
    return _shown(os.pread(file.fileno(), _MOST_SHOWN, max(0, size - _MOST_SHOWN)))


def _shown(data: bytes) -> str:
    return output_lines(data.decode("utf-8", "replace")).strip("\n")


MakeForm = Callable[[View], Form | None]
"""Function that returns the form for a run; None if it is not possible in the run's state."""
MakeWorkerForm = Callable[[View, WorkerView], Form | None]
"""Function that returns the form for a worker; None if it is not possible in the worker's state."""
