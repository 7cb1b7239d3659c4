"""`orchestrator merge`: merge workers' branches into the user's branch."""

from dataclasses import dataclass
from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Annotated, get_args

import typer

from orchestrator.cli.landing_arguments import RunAndWorkers, run_and_workers
from orchestrator.cli.options import Config, Json, Report, with_options
from orchestrator.cli.output.messages import show, show_json, tell
from orchestrator.cli.reporting import Reports
from orchestrator.errors import ConfigError
from orchestrator.git.repository import Repository
from orchestrator.judging.check_run import Tests
from orchestrator.landing.branches import read_branches
from orchestrator.landing.land import undo as take_back
from orchestrator.landing.merge import (
    OnConflict,
    Order,
    Wish,
    merge_branches,
)
from orchestrator.landing.merged import Form, Merged
from orchestrator.reports.decisions import merge_lines
from orchestrator.state.history import named_run
from orchestrator.state.run_directory import all_runs
from orchestrator.text.quantities import count
from orchestrator.text.sanitize import one_line

SOME_LEFT = 1
_SHORT = 12


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Options of `orchestrator merge`."""

    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="|".join(get_args(Form)),
            help="Add each worker's work by a merge, as one commit, by a rebase, or uncommitted.",
        ),
    ] = "merge"
    order: Annotated[
        str,
        typer.Option(
            "--order",
            metavar="|".join(get_args(Order)),
            help="Order of the merges: as the workers are given, or with the fewest conflicts.",
        ),
    ] = "given"
    on_conflict: Annotated[
        str | None,
        typer.Option(
            "--on-conflict",
            metavar="|".join(get_args(OnConflict)),
            help="If a branch conflicts: merge no branch at all, or leave out that branch only. "
            "[default: stop; skip with `--queue`]",
        ),
    ] = None
    queue: Annotated[
        bool,
        typer.Option(
            "--queue", help="Run checks on each merged commit, and leave out branches that fail."
        ),
    ] = False
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check",
            metavar="CMD",
            help="Command that must succeed on a merged commit; repeatable. "
            "[default: `checks` of the configuration]",
        ),
    ] = None
    tests: Annotated[
        str | None,
        typer.Option(
            "--tests",
            metavar="frozen|extend|free",
            help="Tests that count with `--queue`: target's, target's with new files, or merge's.",
        ),
    ] = None
    config: Config = None
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="BRANCH",
            help="Branch to merge into. [default: the branch that is checked out]",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be merged, and change nothing.")
    ] = False
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Undo the latest merge, if the branch has not moved since."),
    ] = False
    report: Report = None
    json: Json = False


@with_options
def merge(options: MergeOptions, words: RunAndWorkers = None) -> None:
    """Merge the branches of workers into the branch that is checked out.

    By default, all workers of the newest run that succeeded are merged. All merges are computed and
    checked first; then the branch is moved once. The exit code is 1 if any branch is left out.
    """
    form, order, on_conflict = _choices(options)
    wanted, numbers = run_and_workers(words)
    repository = Repository(Path.cwd())
    reports = Reports.requested(options.report, automatic=False)
    if options.undo:
        _undo(repository, options, wanted, numbers)
        return
    wish = Wish(
        form=form,
        order=order,
        on_conflict=on_conflict,
        into=options.into,
        named=bool(numbers),
        dry_run=options.dry_run,
    )
    run = read_branches(repository, wanted, numbers)
    if options.queue:
        # Imported only here: nothing else of this command needs the engine and the runs.
        module = import_module("orchestrator.cli.merge_test")
        test = module.QueueTest(
            checks=options.check, tests=options.tests or "extend", file=options.config
        )
        merged = module.merge_tested(repository, run, wish, test)
    else:
        merged = merge_branches(repository, run, wish)
    if options.json:
        show_json(dumps(merged.model_dump(mode="json"), indent=2))
    else:
        show_merged(merged)
    reports.write(run.run_id, merged=merged)
    if merged.left:
        raise typer.Exit(SOME_LEFT)


def _choices(options: MergeOptions) -> tuple[Form, Order, OnConflict]:
    """Check the options that accept only certain values, and return their values."""
    for flag, given, kind in (
        ("--as", options.form, Form),
        ("--order", options.order, Order),
        ("--on-conflict", options.on_conflict or "stop", OnConflict),
        ("--tests", options.tests or "extend", Tests),
    ):
        if given not in get_args(kind):
            raise ConfigError(
                f"option `{flag}` is `{one_line(given)}`: must be one of "
                f"{', '.join(get_args(kind))}"
            )
    _check_queue(options)
    on_conflict = options.on_conflict or ("skip" if options.queue else "stop")
    return options.form, options.order, on_conflict  # type: ignore[return-value]


def _check_queue(options: MergeOptions) -> None:
    if not options.queue and (options.check or options.config or options.tests):
        raise ConfigError("`--check`, `--tests` and `--config` require `--queue`")
    if not options.queue:
        return
    if options.dry_run or options.undo:
        raise ConfigError("`--queue` cannot be used with `--dry-run` or `--undo`")
    if options.on_conflict == "stop":
        raise ConfigError(
            "`--on-conflict stop` cannot be used with `--queue`, which leaves branches out"
        )


def _undo(
    repository: Repository, options: MergeOptions, wanted: str | None, numbers: tuple[int, ...]
) -> None:
    if numbers or options.dry_run or options.report:
        raise ConfigError(
            "`--undo` takes a whole merge back: it cannot be used with numbers, `--dry-run` "
            "or `--report`"
        )
    run_id = None if wanted is None else _run_id(repository, wanted)
    landed = take_back(repository, into=options.into, run_id=run_id)
    if options.json:
        show_json(dumps(landed.model_dump(mode="json", exclude={"previous"}), indent=2))
        return
    workers = ", ".join(str(number) for number in landed.workers)
    place = f"{landed.branch} is at {landed.before[:_SHORT]} again"
    show(f"undid the merge of worker {workers}: {place}")


def _run_id(repository: Repository, wanted: str) -> str:
    return named_run(list(all_runs(repository.state_dir)), wanted).run_id


def show_merged(merged: Merged) -> None:
    """Print what was merged, and what was left."""
    for line in merge_lines(merged):
        show(line)
    _tell_more(merged)


def _tell_more(merged: Merged) -> None:
    if merged.given_conflicts is not None:
        conflicts = sum(left.reason == "conflict" for left in merged.left)
        given = count(merged.given_conflicts, "conflict")
        tell(f"with the best order: {count(conflicts, 'conflict')}; with the given order: {given}")
    if merged.landed and not merged.dry_run:
        tell("to undo the merge: orchestrator merge --undo")
