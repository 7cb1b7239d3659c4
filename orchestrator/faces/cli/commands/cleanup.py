"""`orchestrator parallel-cleanup` and `orchestrator restore`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import (
    EngineError,
    NoRepositoryError,
    OrchestratorError,
    UnsupportedError,
)
from orchestrator.base.text.quantities import count
from orchestrator.base.text.quantities import size as amount
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine import load_engine
from orchestrator.engine.interface.protocol import Engine
from orchestrator.faces.cli.options import Config, with_options
from orchestrator.faces.cli.output.formats import age
from orchestrator.faces.cli.output.messages import show, tell, tell_failure
from orchestrator.repository.repository import find_top
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.remove import cleanup as clean_up
from orchestrator.runs.cleanup.report import CleanedWorker, CleanupReport

SOME_LEFT = 1
RETENTION = "6h"
"""Minimum age of the workers that `gc` removes, if neither an option nor the configuration sets an
age.
"""
_SHOWN = 5
_LONGEST = 1000
"""Maximum length of a line about what was not removed, whose hint is at its end."""

Numbers = Annotated[
    list[int] | None,
    typer.Argument(metavar="N", min=1, help="Numbers of the workers. [default: all]"),
]
Run = Annotated[
    str | None,
    typer.Option("--run", metavar="ID", help="Id of the run. [default: all finished runs]"),
]
RunOfBackup = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="ID",
        help="Id of the run to restore from. [default: newest backup of each worker number]",
    ),
]

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
]


@dataclass(frozen=True, kw_only=True)
class CleanupOptions:
    """Options of `parallel-cleanup`: which workers are removed, and what is kept of them."""

    merged: Annotated[
        bool,
        typer.Option(
            "--merged",
            help="Remove only workers whose work is all committed and in another branch.",
        ),
    ] = False
    pushed: Annotated[
        bool,
        typer.Option(
            "--pushed",
            help="Remove only workers whose work is pushed (with `--merged`: pushed or merged).",
        ),
    ] = False
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Remove only workers that ended at least this long ago, such as `6h`.",
        ),
    ] = None
    purge: Annotated[
        bool,
        typer.Option(
            "--purge",
            help="Create no backups, and delete existing backups of the chosen workers.",
        ),
    ] = False
    dry_run: DryRun = False


@with_options
def parallel_cleanup(options: CleanupOptions, workers: Numbers = None, run: Run = None) -> None:
    """Remove worktrees, branches and containers of finished runs.

    Work that is not committed or not merged is kept as a backup: see `orchestrator restore`.
    """
    wanted = Wanted(
        workers=tuple(workers or ()),
        merged=options.merged,
        pushed=options.pushed,
        older_than=None if options.older_than is None else age("--older-than", options.older_than),
    )
    try:
        root = find_top(Path.cwd())
    except NoRepositoryError:
        if workers or run:
            raise
        tell("nothing to clean up: this is not a git repository")
        return
    _clean(root, wanted, run=run, purge=options.purge, dry_run=options.dry_run)


def gc(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Remove workers that ended at least this long ago. "
            "[default: the setting `retention`, else 6h]",
        ),
    ] = None,
    config: Config = None,
    dry_run: DryRun = False,
) -> None:
    """Remove worktrees and branches of ended workers whose work is all committed and merged."""
    top = find_top(Path.cwd())
    if not older_than:
        # Imported here because only `gc` reads the configuration.
        from orchestrator.config.loading.loading import load_settings

        settings = load_settings(
            options={}, environ=os.environ, top=top, file=config, task_needed=False
        )
        older_than = settings.config.retention or RETENTION
    wanted = Wanted(merged=True, older_than=age("--older-than", older_than))
    _clean(top, wanted, run=None, purge=False, dry_run=dry_run)


def _clean(root: Path, wanted: Wanted, *, run: str | None, purge: bool, dry_run: bool) -> None:
    engine: Engine | None = None
    missing: OrchestratorError | None = None
    try:
        engine = load_engine("docker")
    except (EngineError, UnsupportedError) as error:
        missing = error
    try:
        report = clean_up(
            root,
            engine=engine,
            wanted=wanted,
            run_id=run,
            purge=purge,
            dry_run=dry_run,
        )
    finally:
        if engine is not None:
            engine.close()
    _show_report(report, dry_run=dry_run)
    if missing is not None and (report.unchecked or report.problems):
        tell("without the container engine, containers of dead runs cannot be removed")
        tell_failure(missing)
        raise typer.Exit(missing.exit_code)
    if missing is not None:
        tell(f"the container engine was not checked: {missing.message}")
    spared = wanted.workers and (report.live or (report.others and not report.workers))
    if spared or report.problems or any(worker.problem for worker in report.workers):
        raise typer.Exit(SOME_LEFT)


def restore(workers: Numbers = None, run: RunOfBackup = None) -> None:
    """Restore worktrees and branches from the backups of a cleanup."""
    # Imported here because a cleanup restores nothing.
    from orchestrator.runs.cleanup.restore import restore as bring_back

    restored = bring_back(find_top(Path.cwd()), workers=tuple(workers or ()), run_id=run)
    for worker in restored:
        what = f"restored worker {worker.worker_id}: {worker.branch} in {worker.worktree}"
        show("\n  ".join([what, *_kept_lines(worker.kept_refs)]))
    if not restored:
        tell("nothing to restore")


def _show_report(report: CleanupReport, *, dry_run: bool) -> None:
    for worker in report.workers:
        if worker.problem:
            problem = one_line(worker.problem, limit=_LONGEST)
            tell(f"worker {worker.worker_id} was not removed: {problem}")
        else:
            show(_line(worker, dry_run=dry_run))
    if report.leftovers:
        objects = count(report.leftovers, "container, network or volume")
        if report.leftovers > 1:
            objects = f"{report.leftovers} containers, networks and volumes"
        show(f"{_verb(dry_run=dry_run)} {objects}")
    for problem in report.problems:
        tell(f"not removed: {one_line(problem, limit=_LONGEST)}")
    for ref in report.purged:
        show(f"{'would drop' if dry_run else 'dropped'} {ref}")
    parts = {worker.run_id for worker in report.workers}
    spared = [
        *(
            f"run {run_id} is still running: "
            f"{'its other workers were ' if run_id in parts else ''}not removed"
            for run_id in report.live
        ),
        *(f"run {run}: not removed" for run in report.others),
    ]
    for line in spared:
        tell(line)
    if report.freed and not report.workers:
        # Imported here because most cleanups print no size.
        show(f"removed {amount(report.freed)} of workers' files from .git/orchestrator")
    done = (report.workers, report.leftovers, report.problems, report.purged, report.freed)
    if not any((*done, spared)):
        tell("nothing to clean up")


def _line(worker: CleanedWorker, *, dry_run: bool) -> str:
    what = f"{_verb(dry_run=dry_run)} worker {worker.worker_id}: {worker.worktree}, {worker.branch}"
    if worker.note is not None:
        what += f"\n  {one_line(worker.note, limit=500)}"
    if worker.backup is not None:
        command = f"orchestrator restore {worker.worker_id} --run {worker.run_id}"
        what += f"\n  kept as {worker.backup}, restore with: {command}"
    return "\n  ".join([what, *_kept_lines(worker.kept_refs)])


def _kept_lines(refs: tuple[str, ...]) -> list[str]:
    """Return one line for each of the first refs, and a line with the number of the other refs."""
    lines = [f"commits on no branch are kept in {ref}" for ref in refs[:_SHOWN]]
    if len(refs) > _SHOWN:
        lines.append(
            f"and in {len(refs) - _SHOWN} more refs: git for-each-ref refs/orchestrator/kept"
        )
    return lines


def _verb(*, dry_run: bool) -> str:
    return "would remove" if dry_run else "removed"
