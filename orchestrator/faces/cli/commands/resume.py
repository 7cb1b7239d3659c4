"""`orchestrator resume`, `retry` and `continue`: go on with a run or with one of its workers."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.cli.feedback import FeedbackOptions, continue_from_feedback
from orchestrator.faces.cli.foreground import run_in_foreground
from orchestrator.faces.cli.next_step import NextStep
from orchestrator.faces.cli.options import ReportedOutput, with_options
from orchestrator.faces.cli.output.views import make_view
from orchestrator.faces.cli.run_arguments import Run, RunOption, open_run
from orchestrator.repository.repository import Repository
from orchestrator.runs.resuming.continued_worker import ContinuedWorker
from orchestrator.runs.resuming.continuing import Message, check_message, message_from_checks
from orchestrator.runs.resuming.detach import take_inherited_lease
from orchestrator.runs.resuming.feedback import Feedback
from orchestrator.runs.resuming.recorded import config_to_repeat
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_record import require_record
from orchestrator.state.worker.turns import LONGEST_MESSAGE, MOST_OF_SETTING, NextTurn

Worker = Annotated[int, typer.Argument(metavar="N", min=1, help="Number of the worker.")]
Text = Annotated[
    str | None, typer.Option("--message", "-m", metavar="TEXT", help="Text for the worker.")
]
TextFile = Annotated[
    str | None,
    typer.Option("--message-file", "-F", metavar="FILE", help="File with the text; `-`: stdin."),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Another model from now on.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout-per-worker",
        metavar="SECONDS",
        min=0,
        max=MOST_OF_SETTING,
        help="Another time limit.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget-per-worker", metavar="USD", help="Another limit for the cost of all turns."
    ),
]
Fixes = Annotated[
    int | None,
    typer.Option(
        "--fix-checks", metavar="K", min=0, max=20, help="Send failed checks back up to K times."
    ),
]


@dataclass(frozen=True, kw_only=True)
class MessageOptions:
    """Options for a text that a worker gets, and for settings in place of the recorded ones."""

    message: Text = None
    message_file: TextFile = None
    model: ModelOption = None
    timeout_per_worker: Timeout = None
    budget_per_worker: Budget = None
    fix_checks: Fixes = None

    def text(self, dash: str | None = None) -> str | None:
        """Return the text; None if there is none.

        Args:
            dash: `-` as an argument, for stdin.

        Raises:
            ConfigError: Several texts were given, or the file cannot be read.
        """
        if dash not in (None, "-"):
            raise ConfigError(
                f"unexpected argument: `{one_line(dash)}`",
                key="option.invalid",
                hint="give a text with `-m`",
            )
        files = [name for name in (self.message_file, dash) if name is not None]
        if len(files) + (self.message is not None) > 1:
            raise ConfigError("give one text: `-m`, `-F` or `-`", key="option.conflict")
        if not files:
            return self.message
        try:
            if files[0] == "-":
                data = sys.stdin.buffer.read(LONGEST_MESSAGE + 1)
            else:
                data = read_limited(files[0], most=LONGEST_MESSAGE, follow=True)
        except OSError as error:
            said = error.strerror or "unreadable"
            raise ConfigError(
                f"cannot read `{one_line(files[0])}`: {said}", key="file.unreadable"
            ) from error
        return data.decode("utf-8", "replace")

    def turn(
        self,
        text: str,
        *,
        now: bool = False,
        quotes: bool = False,
        sources: tuple[str, ...] = (),
    ) -> NextTurn:
        """Return the message with its settings.

        Raises:
            ConfigError: The text or a setting is invalid.
        """
        budget = self.budget_per_worker
        if budget is not None and not 0 < budget <= MOST_OF_SETTING:
            raise ConfigError(
                f"option `--budget-per-worker` is `{budget:g}`: must be a number above 0 and at "
                f"most {MOST_OF_SETTING}",
                key="option.invalid",
            )
        if self.model is not None and (not self.model.strip() or self.model.startswith("-")):
            raise ConfigError("option `--model` must be the name of a model", key="option.invalid")
        return NextTurn(
            message=check_message(text),
            quotes=quotes,
            sources=sources,
            now=now,
            model=self.model,
            timeout_per_worker=self.timeout_per_worker,
            budget_per_worker=self.budget_per_worker,
            fix_checks=self.fix_checks,
        )


Dash = Annotated[str | None, typer.Argument(metavar="-", help="Read the message from stdin.")]
Checks = Annotated[bool, typer.Option("--checks", help="Send the output of the failed checks.")]
Now = Annotated[
    bool, typer.Option("--now", help="Stop the worker's present turn first; keep its work.")
]


@dataclass(frozen=True, kw_only=True)
class ContinueOptions(FeedbackOptions, MessageOptions):
    """Options for the message with which a worker continues."""

    checks: Checks = False
    now: Now = False


@with_options
def resume(output: ReportedOutput, run: Run = None) -> None:
    """Continue a run whose process died, without repeating finished tasks."""
    with open_run(run) as history:
        directory, record = history.directory, require_record(history.directory)
    view = make_view(quiet=output.quiet, events=output.events)
    resumed = ResumedRun(directory, emit=view, lease=take_inherited_lease())
    code = run_in_foreground(resumed, record.config, view, output, workflow=record.workflow)
    raise typer.Exit(code)


@with_options
def retry(
    worker: Worker,
    given: MessageOptions,
    output: ReportedOutput,
    keep: Annotated[
        str, typer.Option("--retry-from", metavar="base|keep", help="Commit to start from.")
    ] = "base",
    run: RunOption = None,
) -> None:
    """Repeat one worker that has ended, as a new run."""
    if keep not in ("base", "keep"):
        raise ConfigError(
            f"option `--retry-from` is `{one_line(keep)}`: must be `base` or `keep`",
            key="option.invalid",
        )
    message = None
    if given != MessageOptions():
        with open_run(run, worker=worker) as history:
            same = history.workers[worker].spec.task
        message = given.turn(given.text() or same)
    config = config_to_repeat(
        Repository(Path.cwd()), run, worker, message=message, keep=keep == "keep"
    )
    view = make_view(quiet=output.quiet, events=output.events)
    runner = ParallelRunner(config, emit=view)
    raise typer.Exit(run_in_foreground(runner, config, view, output))


@with_options
def continue_(
    worker: Worker,
    given: ContinueOptions,
    output: ReportedOutput,
    dash: Dash = None,
    run: RunOption = None,
) -> None:
    """Continue one worker with a message, in its session and on its branch."""
    with open_run(run, worker=worker) as history:
        directory, record = history.directory, require_record(history.directory)
    text = given.text(dash)
    given.check_feedback(as_json=output.json)
    if (text is not None) + given.checks + given.quotes != 1:
        raise ConfigError(
            "give one message: a text, `--checks`, `--from-pr` or `--from-ci`",
            key="option.conflict",
            hint=f'`orchestrator continue {worker} -m "what to do next"`',
        )

    def proceed(found: Feedback, then: NextStep | None) -> int:
        quotes = given.quotes or given.checks
        turn = given.turn(found.message, now=given.now, sources=found.sources, quotes=quotes)
        view = make_view(quiet=output.quiet, events=output.events)
        continued = ContinuedWorker(directory, Message(worker, turn), emit=view)
        shown = replace(output, next_step=then)
        return run_in_foreground(continued, record.config, view, shown, workflow=record.workflow)

    if given.quotes:
        raise typer.Exit(continue_from_feedback(directory, worker, given, proceed))
    text = text if text is not None else message_from_checks(directory, record, worker)
    raise typer.Exit(proceed(Feedback(message=text), None))
