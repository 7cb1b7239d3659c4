"""`orchestrator report`."""

import os
import sys
from dataclasses import replace
from pathlib import Path

from orchestrator.base.errors import ConfigError
from orchestrator.faces.cli.options import Artifacts, JUnit, Report
from orchestrator.faces.cli.output.formats import terminal_width
from orchestrator.faces.cli.output.messages import show, show_document
from orchestrator.faces.cli.output.overview import overview
from orchestrator.faces.cli.reporting import check_artifacts, check_junit, copy_artifacts, publish
from orchestrator.faces.cli.run_arguments import Run, open_run
from orchestrator.repository.repository import Repository
from orchestrator.runs.reports.formats import FORMATS, SYSTEMS, Target, parse_target
from orchestrator.runs.reports.model import RunReport, read_run


def report(
    run: Run = None, report: Report = None, artifacts: Artifacts = None, junit: JUnit = None
) -> None:
    """Report on a run that is live, has ended or died, in the formats of CI systems.

    Without `--report`, the report is a table and a timeline on stdout.
    """
    targets = [parse_target(text) for text in report or ()]
    check_junit(targets, junit)
    if artifacts is not None:
        check_artifacts(artifacts)
    if sum(target.path is None for target in targets) > 1:
        raise ConfigError(
            "only one report can be printed",
            key="report.stdout",
            hint="write `--report FORMAT=FILE`",
        )
    with open_run(run) as history:
        directory = history.directory
    found = read_run(directory)
    if found is None:
        raise ConfigError(
            f"the record of run {directory.run_id} is missing or unreadable", key="run.unreadable"
        )
    found = replace(found, junit=tuple(junit or ()))
    problems = [] if artifacts is None else [*copy_artifacts(found, artifacts)]
    for target in targets:
        _write(found, target)
    if problems:
        raise ConfigError("\n".join(problems), key="artifacts.incomplete")
    if not targets and artifacts is None:
        show(overview(found, width=terminal_width()))


def _write(found: RunReport, target: Target) -> None:
    if target.format in SYSTEMS:
        try:
            publish(found, target.format, os.environ, sys.stdout)
        except OSError as error:
            raise ConfigError(
                f"the report could not be sent: {error.strerror or error}", key="report.unsent"
            ) from error
    elif target.path is None and target.format == "markdown":
        show(FORMATS["markdown"].render(found).rstrip("\n"))
    elif target.path is None:
        show_document(FORMATS[target.format].render(found))
    else:
        try:
            target.write(found, top=Repository(Path.cwd()).top)
        except OSError as error:
            raise ConfigError(
                f"the report could not be written: {error.strerror}", key="report.unwritable"
            ) from error
