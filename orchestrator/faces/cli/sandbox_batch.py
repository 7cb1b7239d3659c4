"""Run a batch of submissions, for the command line."""

import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from json import dumps
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import typer

from orchestrator.base.errors import ConfigError, EngineError
from orchestrator.base.files.output import write_output
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.quantities import count, duration, listing
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.request import read_request
from orchestrator.faces.cli.commands.sandbox import BatchCommand
from orchestrator.faces.cli.options import GivenSettings
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.faces.cli.output.streams import end_with_reader
from orchestrator.faces.cli.output.views import is_redrawn
from orchestrator.faces.cli.sandbox_run import read_template, variables
from orchestrator.faces.cli.signals import run_interruptibly
from orchestrator.runs.reports.formats import Target, parse_target
from orchestrator.runs.reports.junit import Case, Suite, Verdict, render_suites
from orchestrator.sandbox.batch import run_all
from orchestrator.sandbox.models import EndReason, Finished, Submission, Template
from orchestrator.sandbox.queue import Batch, Results, as_line
from orchestrator.sandbox.supervision.cancel import Cancel

_OK, _FAILED = "ok", "failed"
_INTERVAL = 10.0
"""Seconds between two lines about the progress, if no bar shows it."""
_SUITE = "orchestrator.batch"
_TAIL = 4000
"""Maximum number of bytes of a command's stderr in a report."""


def run_batch(
    limits: GivenSettings, given: GivenSettings, asked: GivenSettings, options: BatchCommand
) -> None:
    """Run the submissions of a file, write or print their results, and exit.

    Args:
        limits: Limits that were given as options.
        given: What was given as options about the sandboxes.
        asked: What was given as options about all commands.
        options: The other options.

    Raises:
        OrchestratorError: An option or a submission is invalid, or the engine failed.
        typer.Exit: With 0 if every command ended with exit code 0, and 1 otherwise.
    """
    if options.resume and options.results is None:
        raise ConfigError(
            "`--resume` requires `--results`, a file that says what is done",
            key="option.incomplete",
        )
    template = read_template(limits, {**given, "env": variables(asked)})
    timeout = {"timeout": asked["timeout"]} if "timeout" in asked else {}
    usual = read_request(Submission, {"command": ("true",), **timeout}).timeout
    report = _report(options.report)
    started = time.monotonic()
    with ExitStack() as stack:
        batch = Batch(stack.enter_context(_open(options.file)), str(options.file))
        outcome = _Outcome(len(batch), keeps_cases=report is not None)
        results = None
        if options.results is None:
            end_with_reader()
        else:
            results = stack.enter_context(closing(Results(options.results, resume=options.resume)))
            _read_results(results, batch, outcome, options)
        shown = stack.enter_context(_Progress(outcome, options))
        waiting = _with_timeout(batch, usual)
        try:
            if batch.left:
                _run(waiting, template, outcome, results, shown, jobs=options.jobs)
        finally:
            shown.end()
            if report is not None:
                _write_report(report, outcome, time.monotonic() - started)
            if outcome.done < len(batch):
                again = ": `--resume` runs the others" if results else ""
                tell(f"{outcome.done:,} of {count(len(batch), 'submission')} have a result{again}")
    _tell_end(outcome, time.monotonic() - started, options)
    raise typer.Exit(0 if outcome.numbers[_OK] == len(batch) else 1)


def _tell_end(outcome: "_Outcome", seconds: float, options: BatchCommand) -> None:
    if options.json:
        summary = {"submissions": outcome.total, **outcome.numbers, "seconds": round(seconds, 3)}
        show_json(dumps({"summary": summary}))
        return
    text = f"{count(outcome.total, 'submission')}: {outcome.text}; {duration(seconds)}"
    if options.results is not None:
        show(text)
    elif not options.quiet:
        tell(text)


def _read_results(
    results: Results, batch: Batch, outcome: "_Outcome", options: BatchCommand
) -> None:
    """Note what is done already."""
    for finished in results.read():
        if not batch.note(finished.id):
            raise ConfigError(
                f"{options.results} has a result of `{one_line(finished.id)}`, which is no "
                f"submission of {options.file}, or has it twice",
                key="batch.other-results",
                hint="name the results of this batch, or another file",
            )
        outcome.add(finished)


def _run(
    waiting: Iterator[Submission],
    template: Template,
    outcome: "_Outcome",
    results: Results | None,
    shown: "_Progress",
    *,
    jobs: int,
) -> None:
    """Run submissions, and write each result when it is known.

    Raises:
        EngineError: The engine failed, or lost submissions.
        typer.Exit: There was a signal.
    """
    cancel, lost = Cancel(), list[str]()

    def work() -> None:
        run = run_all(waiting, template=template, at_once=jobs, cancel=cancel)
        with closing(run) as ended:
            for finished in ended:
                if finished.reason is EndReason.ENGINE_LOST:
                    lost.append(one_line(finished.id))
                # protection: stopped-submissions-have-no-result
                elif finished.reason is not EndReason.KILLED or not cancel.stop_asked:
                    _put(as_line(finished), results)
                    outcome.add(finished)
                    shown.update()

    run_interruptibly(work, lambda again: cancel.press(kill=again))
    if lost:
        raise EngineError(
            f"the engine lost {listing(lost, 'submission')}",
            key="sandbox.lost",
            hint="run again with `--resume`" if results else "run them again",
        )


def _open(path: Path) -> BinaryIO:
    """Open the file of submissions; a pipe is copied to a temporary file."""
    try:
        file = sys.stdin.buffer if str(path) == "-" else open_regular(path, follow=True)
    except OSError as error:
        raise ConfigError(
            f"the file `{one_line(str(path))}` cannot be read: {error.strerror}",
            key="file.unreadable",
        ) from error
    if file.seekable():
        return file
    with file:
        copied: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
        shutil.copyfileobj(file, copied)
        copied.seek(0)
        return copied


def _report(given: list[str] | None) -> Target | None:
    """Return the report to write; None without one."""
    targets = [parse_target(text) for text in given or ()]
    if not targets:
        return None
    if len(targets) > 1 or targets[0].format != "junit" or targets[0].path is None:
        raise ConfigError(
            "a batch has one report: `--report junit=FILE`",
            key="option.invalid",
            hint="the results themselves are JSON lines",
        )
    return targets[0]


def _with_timeout(batch: Batch, usual: float) -> Iterator[Submission]:
    """Take the submissions of a batch; those without a timeout get the usual one."""
    for submission in batch.take():
        own = "timeout" in submission.model_fields_set
        yield submission if own else submission.model_copy(update={"timeout": usual})


def _put(line: str, results: Results | None) -> None:
    if results is not None:
        results.write(line)
        return
    show_json(line)
    # A pipe or terminal cannot do this.
    with suppress(OSError):
        os.fsync(sys.stdout.fileno())


class _Outcome:
    """How the submissions of a batch ended, in numbers and for a report."""

    def __init__(self, total: int, *, keeps_cases: bool) -> None:
        self.numbers = Counter({_OK: 0, _FAILED: 0})
        self.cases: list[Case] = []
        self.total = total
        self._keeps_cases = keeps_cases

    @property
    def done(self) -> int:
        return self.numbers.total()

    @property
    def text(self) -> str:
        """The numbers in words, such as `2 ok, 1 timeout`."""
        return ", ".join(f"{number:,} {name}" for name, number in self.numbers.items() if number)

    def add(self, finished: Finished) -> None:
        reason = str(finished.reason)
        if finished.reason is EndReason.EXITED:
            reason = _OK if finished.ok else _FAILED
        self.numbers[reason] += 1
        if self._keeps_cases:
            verdict = None
            if not finished.ok:
                message = finished.message or f"exit code {finished.exit_code}"
                text = finished.stderr[-_TAIL:].decode("utf-8", "replace")
                verdict = Verdict("failure", reason, message, text)
            self.cases.append(Case(_SUITE, finished.id, finished.wall, verdict))


def _write_report(target: Target, outcome: _Outcome, seconds: float) -> None:
    suite = Suite(_SUITE, seconds, None, {}, outcome.cases)
    text = render_suites(_SUITE, seconds, [suite])
    try:
        write_output(target.path or Path(), text.encode())
    except OSError as error:
        tell(f"warning: the report could not be written to {target.path}: {error.strerror}")


class _Progress:
    """Shows on stderr how many submissions are done: a bar on a terminal, else a line at times."""

    def __init__(self, outcome: _Outcome, options: BatchCommand) -> None:
        self._outcome = outcome
        self._is_quiet = options.quiet
        self._told_at = time.monotonic()
        self._before = outcome.done
        self._bar = None
        # Results on the same terminal would be printed into the bar.
        apart = options.results is not None or not sys.stdout.isatty()
        if apart and not options.quiet and is_redrawn(sys.stderr):
            # Imported here because rich is large, and needed only on terminals.
            from orchestrator.faces.cli.output.progress_bar import ProgressBar

            self._bar = ProgressBar(sys.stderr, outcome.total)

    def __enter__(self) -> Self:
        if self._before and not self._is_quiet:
            tell(f"{self._before:,} of {count(self._outcome.total, 'submission')} had a result")
        self.update()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def update(self) -> None:
        if self._bar is not None:
            self._bar.update(self._outcome.done, self._outcome.text)
        elif not self._is_quiet and time.monotonic() > self._told_at + _INTERVAL:
            self._told_at = time.monotonic()
            done, total = self._outcome.done, self._outcome.total
            tell(f"{done:,} of {count(total, 'submission')} done: {self._outcome.text}")

    def end(self) -> None:
        if self._bar is not None:
            self._bar.end()
