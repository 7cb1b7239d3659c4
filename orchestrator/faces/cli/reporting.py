"""Write reports of a run: to files, and to the log of a CI job."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TextIO

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.output import check_output
from orchestrator.base.results import Status
from orchestrator.base.text.sanitize import lines, one_line
from orchestrator.faces.cli.output.ci import automatic_report
from orchestrator.faces.cli.output.messages import put, tell
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.merged import Merged
from orchestrator.runs.reports import github
from orchestrator.runs.reports.findings import findings
from orchestrator.runs.reports.formats import SYSTEMS, Target, parse_target
from orchestrator.runs.reports.logs import output_tail
from orchestrator.runs.reports.model import RunReport, read_run
from orchestrator.runs.reports.otlp import endpoint, export_trace, is_disabled
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.workspace.artifacts import copy_collected

_WITH_FINDINGS = ("codequality", "github", "sarif")
_BLOCK = 8 * 1024
"""Maximum number of bytes of one worker's output in the log of a CI job."""
_BLOCKS = 50
"""Maximum number of workers whose output is in the log of a CI job, because GitLab folds no log
over 500 KiB.
"""


@dataclass(frozen=True)
class Reports:
    """The reports that a command writes at the end of a run."""

    targets: tuple[Target, ...]
    quiet: bool = False
    """Whether the log of a CI job gets only the output of workers that did not succeed."""
    artifacts: Path | None = None
    """Directory to which the artifacts of workers are copied."""
    junit: tuple[str, ...] = ()
    """Artifacts that are JUnit files, whose tests the JUnit report contains."""

    @classmethod
    def from_options(
        cls,
        given: list[str] | None,
        *,
        quiet: bool = False,
        automatic: bool = True,
        artifacts: Path | None = None,
        junit: list[str] | None = None,
    ) -> "Reports":
        """Return the reports of the option `--report`, and the report for this CI system.

        Args:
            given: Values of the option.
            quiet: Whether the log of a CI job gets only the output of failures.
            automatic: Whether a GitHub or GitLab job gets a report even without `--report`.
            artifacts: Value of the option `--artifacts`.
            junit: Values of the option `--junit`.

        Raises:
            ConfigError: There is no such format, or a file cannot be written.
        """
        targets = [_parse(text) for text in given or ()]
        check_junit(targets, junit)
        if artifacts is not None:
            check_artifacts(artifacts)
        system = automatic_report(os.environ) if automatic else None
        if system and all(target.format != system for target in targets):
            targets.append(Target(system))
        sends_trace = any(target.format == "otlp-http" for target in targets)
        if sends_trace and not is_disabled(os.environ):
            endpoint(os.environ)
        return cls(tuple(targets), quiet=quiet, artifacts=artifacts, junit=tuple(junit or ()))

    def write(self, run_id: str | None, *, merged: Merged | None = None) -> None:
        """Write the reports of a run; a report that cannot be written is a warning.

        Args:
            run_id: The run; None if none was started.
            merged: How the command merged the run's branches, if it did.
        """
        if run_id is None or not (self.targets or self.artifacts):
            return
        report = report_of(run_id)
        if report is None:
            return
        report = replace(report, merged=merged, junit=self.junit)
        if self.artifacts is not None:
            for problem in copy_artifacts(report, self.artifacts):
                tell(f"warning: {problem}")
        for target in self.targets:
            try:
                if target.format in SYSTEMS:
                    publish(report, target.format, os.environ, sys.stderr, quiet=self.quiet)
                else:
                    target.write(report, top=Repository(Path.cwd()).top)
            except OSError as error:
                why = lines(error.strerror or str(error))
                place = f" to {one_line(str(target.path))}" if target.path else ""
                tell(f"warning: the report `{target.format}` could not be written{place}: {why}")
        if any(target.format in _WITH_FINDINGS for target in self.targets):
            unread = Counter[str]()
            findings(report, unread)
            for what, number in unread.items():
                tell(f"warning: not in the reports: {number} {what} of a SARIF file")


def check_junit(targets: list[Target], junit: list[str] | None) -> None:
    """Check that JUnit files of workers are only named for a JUnit report.

    Raises:
        ConfigError: There is no such report.
    """
    if junit and all(target.format != "junit" for target in targets):
        raise ConfigError(
            "`--junit` names files for the JUnit report, which was not requested",
            key="option.incomplete",
            hint="add `--report junit=FILE`",
        )


def check_artifacts(directory: Path) -> None:
    """Check that a directory for artifacts has no files of an earlier run, and can be written.

    Raises:
        ConfigError: The directory is not empty, or cannot be written.
    """
    try:
        taken = directory.is_dir() and any(directory.iterdir())
        if not taken:
            check_output(directory / "files")
    except OSError as error:
        raise ConfigError(
            f"cannot write to {directory}: {error.strerror}", key="directory.unwritable"
        ) from error
    if taken:
        raise ConfigError(
            f"the directory for artifacts is not empty: {directory}",
            key="directory.occupied",
            hint="remove it, so that no file of an earlier run stays, or name another directory",
        )


def copy_artifacts(report: RunReport, directory: Path) -> Iterator[str]:
    """Copy the artifacts of each worker to a directory, and yield what could not be copied."""
    for worker in report.workers:
        try:
            copy_collected(worker.directory, directory / f"worker-{worker.worker_id}")
        except OSError as error:
            why = lines(error.strerror or str(error))
            yield f"the artifacts of worker {worker.worker_id} could not be copied: {why}"


def report_of(run_id: str) -> RunReport | None:
    """Return the report on a run of this repository; None without a readable record."""
    directory = RunDirectory(Repository(Path.cwd()).state_dir / "runs" / run_id)
    if not directory.path.exists():
        return None  # a successful `cache warm` leaves no run
    report = read_run(directory)
    if report is None:
        tell(f"warning: there is no report: the record of run {run_id} cannot be read")
    return report


def _parse(text: str) -> Target:
    target = parse_target(text)
    if target.path is None and target.format not in SYSTEMS:
        raise ConfigError(
            f"option `--report {target.format}` needs a file: stdout has the result",
            key="report.stdout",
            hint=f"write `--report {target.format}=FILE`",
        )
    return target


def publish(
    report: RunReport, system: str, environ: Mapping[str, str], out: TextIO, *, quiet: bool = False
) -> None:
    """Write a report to the log of a job and the files of its CI system, or send a trace.

    Args:
        report: The report.
        system: One of `SYSTEMS`.
        environ: The variables of the job.
        out: The log.
        quiet: Whether to print only what concerns workers that did not succeed.

    Raises:
        OSError: A file of the CI system cannot be written, or the trace cannot be sent.
    """
    if system == "otlp-http":
        if said := export_trace(report, environ):
            tell(f"warning: {said}")
        return
    workers = [worker for worker in report.workers if worker.result]
    if quiet:
        workers = [worker for worker in workers if worker.status is not Status.SUCCESS]
    for worker in workers[:_BLOCKS]:
        text = output_tail(worker.directory, most=_BLOCK)
        if text:
            begin, end = _fold(worker, system)
            out.write(begin)
            # protection: output-in-jobs-log-is-guarded
            put(text, out)
            out.write(end)
    if system == "github":
        out.write("".join(f"{line}\n" for line in github.annotations(report)))
        if path := environ.get("GITHUB_STEP_SUMMARY"):
            github.write_summary(report, Path(path))
        if path := environ.get("GITHUB_OUTPUT"):
            github.write_outputs(report, Path(path))
    out.flush()


def _fold(worker: WorkerView, system: str) -> tuple[str, str]:
    """Return the lines that begin and end a part of the log which a reader can fold."""
    title = f"{one_line(worker.title, limit=100)}: {worker.outcome}"
    if system == "github":
        return f"::group::{title}\n", "::endgroup::\n"
    name = f"worker_{worker.worker_id}"
    begin, end = (int(moment.timestamp()) for moment in _span(worker))
    return (
        f"\x1b[0Ksection_start:{begin}:{name}[collapsed=true]\r\x1b[0K{title}\n",
        f"\x1b[0Ksection_end:{end}:{name}\r\x1b[0K\n",
    )


def _span(worker: WorkerView) -> Iterator[datetime]:
    """Yield the time when a worker started and the time when it ended."""
    yield worker.phases[0].start if worker.phases else datetime.fromtimestamp(0).astimezone()
    yield worker.phases[-1].end if worker.phases else datetime.fromtimestamp(0).astimezone()
