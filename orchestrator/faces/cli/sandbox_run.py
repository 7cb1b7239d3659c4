"""Run one command in a sandbox, for the command line."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NoReturn

import typer

from orchestrator.base.errors import ConfigError, EngineError, mistakes
from orchestrator.base.events import Stream
from orchestrator.base.files.output import check_output, write_output
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.text.quantities import size
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.loading.sources import read_variables
from orchestrator.config.request import read_request
from orchestrator.engine import connected
from orchestrator.engine.interface.protocol import LogChunk
from orchestrator.faces.cli.options import GivenSettings
from orchestrator.faces.cli.output.messages import show_json, tell
from orchestrator.faces.cli.output.sink import Sink
from orchestrator.faces.cli.output.streams import LostOutputError, wait_for_readers
from orchestrator.faces.cli.signals import run_interruptibly
from orchestrator.sandbox.batch import run_one
from orchestrator.sandbox.layout import check
from orchestrator.sandbox.models import EndReason, Finished, SandboxLimits, Submission, Template
from orchestrator.sandbox.output_buffer import OutputBuffer
from orchestrator.sandbox.supervision.cancel import Cancel

TIMEOUT, KILLED = 124, 137
_LARGEST = 256 * 1024**2
"""Maximum number of bytes of a file, and of the standard input, that a command gets."""
_BACKLOG = 32 * 1024**2
"""Bytes of output that wait for their reader in memory, before the command is slowed down."""
_PATIENCE = 5.0


def run_command(
    limits: GivenSettings,
    given: GivenSettings,
    asked: GivenSettings,
    command: list[str],
    as_json: bool,
) -> None:
    """Run a command in a sandbox, and exit with its exit code.

    Args:
        limits: Limits that were given as options.
        given: What was given as options about the sandbox.
        asked: What was given as options about the command.
        command: The command.
        as_json: Whether its output is part of a JSON object, instead of being printed as it comes.

    Raises:
        OrchestratorError: An option is invalid, or the engine failed.
        typer.Exit: With the exit code.
    """
    template = read_template(limits, given)
    wanted = [text.partition(":") for text in asked.get("out", ())]
    targets = [Path(target or PurePosixPath(path).name) for path, _, target in wanted]
    for target in targets:
        with _writing(target):
            check_output(target)
    submission = read_request(
        Submission,
        {
            **asked,
            "command": tuple(command),
            "files": dict(map(_read_file, asked.get("files", ()))),
            "stdin": _read_stdin(asked["stdin"]) if "stdin" in asked else b"",
            "env": variables(asked),
            "out": tuple(path for path, _, _ in wanted),
        },
    )
    cancel = Cancel()
    output = None if as_json else PrintedOutput(template.limits.log_limit, cancel)

    def work() -> Finished:
        with connected(None) as engine:
            return run_one(submission, check(template, engine), cancel, output)

    finished = run_interruptibly(work, lambda again: cancel.press(kill=again))
    if output is not None:
        output.finish()
    check_observed(finished)
    for path, target in zip(submission.out, targets, strict=True):
        if path in finished.files:
            with _writing(target):
                write_output(target, finished.files[path])
        else:
            tell(f"warning: the command left no file {one_line(path)}")
    exit_as(finished, as_json=as_json)


def check_observed(finished: Finished) -> None:
    """Check that the end of a command was observed.

    Raises:
        EngineError: It was not.
    """
    ended = finished.reason is not EndReason.EXITED or finished.exit_code is not None
    if finished.reason is EndReason.ENGINE_LOST or not ended:
        raise EngineError(finished.message or "the end was not observed", key="sandbox.lost")


def exit_as(finished: Finished, *, as_json: bool) -> NoReturn:
    """Print why a command ended, if not by itself, or all of it as JSON; exit with its code.

    Raises:
        typer.Exit: Always.
    """
    if as_json:
        show_json(finished.model_dump_json(indent=2, ensure_ascii=True))
    if finished.reason is EndReason.EXITED:
        raise typer.Exit(finished.exit_code or 0)
    tell(one_line(f"{finished.reason}: {finished.message or 'killed'}", limit=400))
    raise typer.Exit(TIMEOUT if finished.reason is EndReason.TIMEOUT else KILLED)


def read_template(
    limits: GivenSettings, given: GivenSettings, usual: Template | None = None
) -> Template:
    """Return how sandboxes are made.

    Args:
        limits: Limits that were given as options.
        given: What else was given as options.
        usual: What holds where nothing was given.

    Raises:
        ConfigError: A value is invalid.
    """
    usual = usual or Template()
    found = read_request(SandboxLimits, {**dict(usual.limits), **limits})
    return read_request(Template, {**dict(usual), **given, "limits": found})


def variables(given: GivenSettings) -> Mapping[str, str]:
    """Return the variables of the option `--env`.

    Raises:
        ConfigError: A variable is not set, or its name cannot be used.
    """
    problems: list[str] = []
    found = read_variables(given, os.environ, problems)
    if problems:
        raise mistakes(problems, "`--help` describes the options", "options", key="option.invalid")
    return found


def _read_file(text: str) -> tuple[str, bytes]:
    source, colon, target = text.rpartition(":")
    if not colon:
        source, target = text, Path(text).name
    return target, read_input(source, "--file")


def _read_stdin(source: str) -> bytes:
    if source != "-":
        return read_input(source, "--stdin")
    data = sys.stdin.buffer.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ConfigError(
            f"the standard input has more than {size(_LARGEST)}", key="file.unreadable"
        )
    return data


def read_input(path: str, option: str) -> bytes:
    """Return the content of the file of an option.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return read_limited(path, most=_LARGEST, follow=True)
    except OSError as error:
        raise ConfigError(
            f"the file `{one_line(path)}` of option `{option}` cannot be read: {error.strerror}",
            key="file.unreadable",
        ) from error


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"the file `{one_line(str(target))}` of option `--out` cannot be written: "
            f"{error.strerror}",
            key="file.unwritable",
        ) from error


class PrintedOutput(OutputBuffer):
    """Output that is printed as it comes, and not kept."""

    def __init__(self, limit: int, cancel: Cancel) -> None:
        """Print at most `limit` bytes, and press `cancel` when nobody reads them."""
        self._sinks = {"stdout": Sink(sys.stdout), "stderr": Sink(sys.stderr)}
        self._printed: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._cancel = cancel
        self._lost: LostOutputError | None = None
        super().__init__(limit)

    def restart(self) -> None:
        """Expect all output again from the first byte; what was printed is not printed again."""
        super().restart()
        self._received: dict[Stream, int] = {"stdout": 0, "stderr": 0}

    def write(self, chunk: LogChunk) -> None:
        """Print a chunk of output, or what of it is new and within the limit."""
        data = chunk.data[: max(self._limit - self.size, 0)]
        self.size += len(chunk.data)
        self.heard_at = time.monotonic()
        begin = self._received[chunk.stream]
        self._received[chunk.stream] += len(data)
        data = data[max(self._printed[chunk.stream] - begin, 0) :]
        self._printed[chunk.stream] += len(data)
        if not data or self._lost is not None:
            return
        try:
            self._sinks[chunk.stream].write(data)
            # Whoever waited for a slow reader here would not notice the end of the container.
            wait_for_readers(_PATIENCE, most=_BACKLOG)
        except OSError as error:
            self._lost = LostOutputError(error.errno, error.strerror)
            self._cancel.press(kill=True)

    def finish(self) -> None:
        """Print the end of the output.

        Raises:
            LostOutputError: The output could not be printed.
        """
        if self._lost is not None:
            raise self._lost
        for sink in self._sinks.values():
            sink.finish()
