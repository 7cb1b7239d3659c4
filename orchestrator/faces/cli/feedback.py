"""Continue a worker with the review of its pull request, or with a file of a CI system."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import RunResult, Status
from orchestrator.base.text.quantities import count, listing
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.cli.next_step import NextStep
from orchestrator.faces.cli.output.messages import show, tell
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.forges import GitHub, GitLab
from orchestrator.runs.resuming.feedback import Feedback, ReviewedRequest, feedback_from_file
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.worker.turns import delivered

if TYPE_CHECKING:
    from orchestrator.review.landing.merged import Merged

FORGES = (GitHub.program, GitLab.program)
RemoteOption = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="NAME",
        help="Remote repository to push to. [default: origin, or the only remote]",
    ),
]
ForgeOption = Annotated[
    str | None,
    typer.Option(
        "--forge",
        metavar="|".join(FORGES),
        help="Program that manages pull requests. [default: by the remote's address]",
    ),
]
Proceed = Callable[[Feedback, NextStep | None], int]
"""Sends a message, and performs the step after the worker's turn; returns the exit code."""


@dataclass(frozen=True, kw_only=True)
class FeedbackOptions:
    """Options for messages that quote a review or a CI system."""

    from_pr: Annotated[
        bool,
        typer.Option(
            "--from-pr",
            help="Send open comments and failed jobs of the pull request; push the new commits.",
        ),
    ] = False
    from_ci: Annotated[
        Path | None,
        typer.Option(
            "--from-ci", metavar="FILE", help="Send the failures in a JUnit file or in a log."
        ),
    ] = None
    watch: Annotated[
        int | None,
        typer.Option(
            "--watch",
            metavar="K",
            min=1,
            max=20,
            help="With `--from-pr`: wait for the jobs of each push; continue up to K times.",
        ),
    ] = None
    any_author: Annotated[
        bool,
        typer.Option(
            "--any-author", help="With `--from-pr`: also send comments of people who cannot push."
        ),
    ] = False
    remote: RemoteOption = None
    forge: ForgeOption = None
    yes: Annotated[
        bool, typer.Option("--yes", help="Send what the preview shows without a question.")
    ] = False

    @property
    def quotes(self) -> bool:
        """Whether the message comes from a review or a CI system."""
        return self.from_pr or self.from_ci is not None

    def check_feedback(self, *, as_json: bool) -> None:
        """Check that the options fit together.

        Raises:
            ConfigError: They do not.
        """
        check_forge(self.forge)
        if self.from_pr and self.from_ci is not None:
            raise ConfigError("give `--from-pr` or `--from-ci`", key="option.conflict")
        values: dict[str, object] = {"--watch": self.watch, "--any-author": self.any_author}
        values |= {"--remote": self.remote, "--forge": self.forge}
        if unused := [name for name, value in values.items() if value and not self.from_pr]:
            raise ConfigError(f"`{unused[0]}` needs `--from-pr`", key="option.conflict")
        if self.yes and not self.quotes:
            raise ConfigError("`--yes` needs `--from-pr` or `--from-ci`", key="option.conflict")
        if self.watch and as_json:
            raise ConfigError(
                "`--watch` cannot be used with `--json`",
                key="option.conflict",
                hint="`--events` prints what happens in each turn",
            )


def check_forge(forge: str | None) -> None:
    """Check the value of `--forge`.

    Raises:
        ConfigError: There is no such program.
    """
    if forge not in (None, *FORGES):
        raise ConfigError(
            f"option `--forge` is `{one_line(forge or '')}`: must be one of {', '.join(FORGES)}",
            key="option.invalid",
        )


def continue_from_feedback(
    directory: RunDirectory, worker: int, options: FeedbackOptions, proceed: Proceed
) -> int:
    """Send a worker what its reviewers and a CI system say, and return the exit code.

    Raises:
        OrchestratorError: There is nothing new, or the worker cannot continue.
    """
    if options.from_ci is not None:
        found = feedback_from_file(options.from_ci)
        _confirm(worker, found, yes=options.yes)
        return proceed(found, None)
    request = ReviewedRequest(
        repository=Repository(Path.cwd()),
        run=directory.run_id,
        worker=worker,
        remote=options.remote,
        forge=options.forge,
    )
    code = 0
    for number in range(options.watch or 1):
        known = {source for turn in delivered(directory, worker) for source in turn.sources}
        look = request.next_feedback if number else request.feedback
        found = look(known, anybody=options.any_author)
        _tell_left_out(found)
        if not found.message and number:
            return _tell_end(worker, found)
        _confirm(worker, found, yes=options.yes)
        try:
            code = proceed(found, _Answer(request, found))
        except ConfigError as error:
            if not number or error.key != "budget.spent":
                raise
            tell(f"worker {worker}: {error.message}")
            return code
        if code:
            return code
    return code


def _tell_left_out(found: Feedback) -> None:
    if found.strangers:
        tell(
            f"left out: {count(found.strangers, 'comment')} by people who cannot push "
            "(`--any-author` sends these too)"
        )
    for unread in found.unread:
        tell(f"not read: {unread}")


def _tell_end(worker: int, found: Feedback) -> int:
    """Say that there is nothing new, and return the exit code: 1 if a job has not passed."""
    red = [f"{listing(found.failed, 'job')} failed"] if found.failed else []
    red += [f"{listing(found.unended, 'job')} did not end in time"] if found.unended else []
    but = f", but {' and '.join(red)}" if red else ""
    tell(f"worker {worker}: there is nothing new in the review{but}")
    return 1 if red else 0


def _confirm(worker: int, found: Feedback, *, yes: bool) -> None:
    """Show what is sent, and ask whether to send it.

    Raises:
        ConfigError: There is nothing to send, or nobody to ask.
        typer.Exit: The user does not want to send it.
    """
    if not found.message:
        raise ConfigError(
            f"there is nothing new for worker {worker}: no open comment, and no failed job with "
            "a log or a description",
            key="feedback.none",
            hint="a comment and a job are sent once; write a message with `-m`",
        )
    # protection: feedback-is-shown-before-it-is-sent
    tell(f"message to worker {worker}:\n\n{found.message}\n")
    if found.rest:
        tell(f"left out: {count(found.rest, 'further part')} of the review")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            "nobody can be asked whether to send the message",
            key="confirmation.missing",
            hint="`--yes` sends it",
        )
    if not typer.confirm(f"Send this to worker {worker}?", default=False, err=True):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Answered:
    failure: int
    """The command's exit code if that of the run is 0."""
    values: Mapping[str, object]
    merged: "Merged | None" = None

    def exit_code_after(self, code: int) -> int:
        return code or self.failure


class _Answer:
    """Pushes the commits of a turn to the pull request, and comments on it."""

    def __init__(self, request: ReviewedRequest, feedback: Feedback) -> None:
        self._request = request
        self._feedback = feedback

    def __call__(self, result: RunResult, *, show_text: bool) -> _Answered:
        (worker,) = result.results
        if worker.status is not Status.SUCCESS:
            tell(f"worker {worker.worker_id}: nothing was pushed, because its turn did not succeed")
            return _Answered(1, {"published": None})
        published = self._request.answer(worker, self._feedback)
        if show_text:
            url = one_line(self._request.request.url)
            show(f"worker {worker.worker_id}: answered the review of {url}")
        return _Answered(0, {"published": published.model_dump(mode="json")})

    def cancel(self, *, kill: bool = False) -> None:
        """Do nothing: a push is not interrupted."""
