"""Use sandboxes that stay, for the command line."""

import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from json import dumps
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.events import Stream
from orchestrator.base.files.output import write_output
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.quantities import duration
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.request import read_request
from orchestrator.faces.cli.options import GivenSettings
from orchestrator.faces.cli.output.formats import table, terminal_width
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.faces.cli.output.sink import Sink
from orchestrator.faces.cli.output.streams import LostOutputError, wait_for_readers
from orchestrator.faces.cli.sandbox_run import (
    check_observed,
    exit_as,
    read_input,
    read_template,
    variables,
)
from orchestrator.faces.cli.signals import run_interruptibly
from orchestrator.sandbox.live import snapshots
from orchestrator.sandbox.live.box import Sandbox
from orchestrator.sandbox.live.process import Process
from orchestrator.sandbox.live.snapshots import Snapshot
from orchestrator.sandbox.models import Finished, SandboxInfo, Submission, Template

_INSIDE = re.compile(r"(?P<id>[0-9a-f]{12}):(?P<path>.+)", re.DOTALL)
_CHUNK = 64 * 1024


def create_sandbox(
    limits: GivenSettings,
    given: GivenSettings,
    asked: GivenSettings,
    ttl: float,
    snapshot: str | None,
    labels: list[str],
) -> None:
    """Create a sandbox, and print its id.

    Raises:
        OrchestratorError: An option is invalid, or the engine failed.
    """
    usual = Template() if snapshot is None else snapshots.find(snapshot).template
    env = {**usual.env, **variables(asked)}
    template = read_template(limits, {**given, "env": env}, usual)
    box = Sandbox.create(template, snapshot=snapshot, ttl=ttl, labels=_labels(labels))
    show(box.id)


def execute(
    asked: GivenSettings,
    sandbox: str,
    command: list[str],
    cwd: str,
    user: str | None,
    as_json: bool,
) -> None:
    """Run a command in a sandbox, and exit with its exit code.

    Raises:
        OrchestratorError: There is no such sandbox, an option is invalid, or the engine failed.
        typer.Exit: With the exit code.
    """
    given = {name: asked[name] for name in ("timeout",) if name in asked}
    checked = read_request(
        Submission, {**given, "command": tuple(command), "env": variables(asked)}
    )
    source = _stdin(asked.get("stdin"))
    process = Sandbox.connect(sandbox).start(
        checked.command, stdin=source is not None, cwd=cwd, env=checked.env, user=user,
        timeout=checked.timeout if given else None,
    )  # fmt: skip
    if source is not None:
        threading.Thread(target=_feed, args=(process, source), name="stdin", daemon=True).start()
    lost: list[OSError] = []
    streams: tuple[Stream, ...] = () if as_json else ("stdout", "stderr")
    printers = [
        threading.Thread(target=_print, args=(process, stream, lost), daemon=True)
        for stream in streams
    ]

    def work() -> Finished:
        for printer in printers:
            printer.start()
        finished = process.wait()
        for printer in printers:
            printer.join()
        return finished

    finished = run_interruptibly(work, lambda _: process.kill())
    for error in lost:
        raise LostOutputError(error.errno, error.strerror)
    check_observed(finished)
    exit_as(finished, as_json=as_json)


def _stdin(name: str | None) -> BinaryIO | None:
    if name is None or name == "-":
        return sys.stdin.buffer if name else None
    try:
        return open_regular(name, follow=True)
    except OSError as error:
        raise ConfigError(
            f"the file `{one_line(name)}` of option `--stdin` cannot be read: {error.strerror}",
            key="file.unreadable",
        ) from error


def _feed(process: Process, source: BinaryIO) -> None:
    """Pass input on to a command, which need not read it."""
    with suppress(OrchestratorError, OSError), source:
        while data := source.read1(_CHUNK):  # type: ignore[attr-defined]
            process.write(data)
    with suppress(OrchestratorError):
        process.close_stdin()


def _print(process: Process, stream: Stream, lost: list[OSError]) -> None:
    """Print what a command prints, until its end; end it if nobody reads."""
    sink, offset = Sink(getattr(sys, stream)), 0
    try:
        while data := process.output(stream, offset, timeout=None):
            offset += len(data)
            sink.write(data)
            wait_for_readers()
        sink.finish()
    except OSError as error:
        lost.append(error)
        process.kill()


def copy_files(source: str, target: str) -> None:
    """Copy a file, or what is in a directory, into a sandbox or out of it.

    Raises:
        OrchestratorError: There is no such sandbox, or a file cannot be read or written.
    """
    inside, outside = _INSIDE.fullmatch(source), _INSIDE.fullmatch(target)
    if (inside is None) == (outside is None):
        raise ConfigError(
            "one of SRC and DST must be in a sandbox",
            key="sandbox.copy",
            hint="write `ID:PATH`; a file here with such a name is `./ID:PATH`",
        )
    with _files():
        if inside is not None:
            _copy_out(Sandbox.connect(inside["id"]), inside["path"], Path(target))
        elif outside is not None:
            _copy_in(Sandbox.connect(outside["id"]), Path(source), outside["path"])


@contextmanager
def _files() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = one_line(str(error.filename or ""))
        raise ConfigError(
            f"`{name}` cannot be copied: {one_line(error.strerror or str(error))}",
            key="sandbox.copy",
        ) from error


def _copy_in(box: Sandbox, source: Path, target: str) -> None:
    if source.is_dir():
        box.files.upload(source, target)
        return
    content = read_input(str(source), "SRC")
    with suppress(FileNotFoundError):
        if target.endswith("/") or box.files.stat(target).kind == "directory":
            target = f"{target.rstrip('/')}/{source.name}"
    box.files.write(target, content, mode=source.stat().st_mode & 0o777)


def _copy_out(box: Sandbox, source: str, target: Path) -> None:
    if box.files.stat(source).kind == "directory":
        box.files.download(source, target)
        return
    here = target / PurePosixPath(source).name if target.is_dir() else target
    write_output(here, box.files.read(source))


def list_all(labels: list[str], of_snapshots: bool, as_json: bool) -> None:
    """Print the sandboxes, or the snapshots, of this user."""
    what = "snapshots" if of_snapshots else "sandboxes"
    found: Sequence[SandboxInfo | Snapshot] = (
        Sandbox.snapshots() if of_snapshots else Sandbox.list(_labels(labels))
    )
    if as_json:
        show_json(dumps({what: [info.model_dump(mode="json") for info in found]}, indent=2))
        return
    if not found:
        tell(f"there are no {what}")
        return
    of_sandboxes = ("ID", "IMAGE", "AGE", "ENDS IN", "LABELS")
    heading = ("NAME", "IMAGE", "AGE") if of_snapshots else of_sandboxes
    show(table([heading, *map(_row, found)], width=terminal_width()))


def _row(info: SandboxInfo | Snapshot) -> tuple[str, ...]:
    age = duration((datetime.now(UTC) - info.created_at).total_seconds())
    if isinstance(info, Snapshot):
        return info.name, one_line(info.template.image), age
    labels = one_line(" ".join(f"{name}={value}" for name, value in info.labels.items()))
    return info.id, one_line(info.image), age, duration(info.expires_in), labels


def remove_sandboxes(names: Sequence[str], everything: bool, of_snapshots: Sequence[str]) -> None:
    """Remove snapshots; end sandboxes, and print their ids.

    Raises:
        OrchestratorError: There is no such sandbox or snapshot, or none was named.
    """
    for name in of_snapshots:
        Sandbox.remove_snapshot(name)
        show(name)
    if of_snapshots and not names and not everything:
        return
    if bool(names) == everything:
        raise ConfigError(
            "name the sandboxes to end, or all of them",
            key="sandbox.unnamed",
            hint="use `orchestrator sandbox rm ID`, or `orchestrator sandbox rm --all`",
        )
    for name in names or [info.id for info in Sandbox.list()]:
        Sandbox.connect(name).kill()
        show(name)


def _labels(given: Sequence[str]) -> Mapping[str, str]:
    wrong = [text for text in given if not text.partition("=")[0] or "=" not in text]
    if wrong:
        raise ConfigError(
            f"option `--label` is `{one_line(wrong[0])}`: must be K=V", key="option.invalid"
        )
    return {name: value for name, _, value in (text.partition("=") for text in given)}
