"""`orchestrator merge`: merge workers' branches into the user's branch."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from orchestrator.cli.landing_arguments import UNFILTERED, RunAndWorkers, run_and_workers
from orchestrator.cli.options import Config, GivenSettings, Json, Report, with_settings
from orchestrator.cli.output.merge_text import SOME_LEFT, show_merged
from orchestrator.cli.output.messages import show, show_json
from orchestrator.cli.reporting import Reports
from orchestrator.config.option import Group
from orchestrator.errors import ConfigError
from orchestrator.git.repository import Repository
from orchestrator.judging.check_run import Tests
from orchestrator.landing.branches import read_branches
from orchestrator.landing.land import undo as take_back
from orchestrator.landing.merge import OnConflict, Order, Wish, merge_branches
from orchestrator.landing.merged import Merged
from orchestrator.record.history import find_run
from orchestrator.results import Form
from orchestrator.state.run_directory import all_runs
from orchestrator.text.path_patterns import problem
from orchestrator.text.sanitize import one_line

_OF_AGENT = {
    "agent_cli": "Agent program that resolves conflicts; needs `--on-conflict agent`.",
    "model": "Model of the agent that resolves conflicts.",
    "agent": "Profile, such as `build`, of the agent that resolves conflicts. [default: build]",
    "image": "Container image of the agent that resolves conflicts.",
    "timeout_per_worker": "Maximum number of seconds to resolve a conflict; 0: no limit. "
    "[default: 600]",
    "budget_per_worker": "Maximum cost in USD of the agent that resolves a conflict.",
    "max_steps": "Maximum number of steps of the agent that resolves a conflict. [default: 50]",
    "network": "Network of the agent that resolves conflicts; values as for `parallel`. "
    "[default: open]",
    "allow": "Host that the agent that resolves conflicts may reach; repeatable.",
    "keys": "API keys of the agent that resolves conflicts; values as for `parallel`. "
    "[default: env]",
    "env": "Environment variable of the agent that resolves conflicts; repeatable.",
    "secrets": "Your variable NAME, or FILE, for the agent that resolves conflicts; repeatable.",
}
"""Help texts of the settings of an agent that resolves conflicts."""
_SAME = ("form", "order", "on_conflict", "into", "unfiltered", "dry_run")
"""Options that `MergeOptions` of `orchestrator.runs.merging` and `Wish` have, by the same names."""
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
            rich_help_panel=Group.MERGING,
        ),
    ] = "merge"
    order: Annotated[
        str,
        typer.Option(
            "--order",
            metavar="|".join(get_args(Order)),
            help="Merge order: as the workers are given, or so that as many as possible are "
            "merged.",
            rich_help_panel=Group.MERGING,
        ),
    ] = "given"
    on_conflict: Annotated[
        str | None,
        typer.Option(
            "--on-conflict",
            metavar="|".join(get_args(OnConflict)),
            help="On a conflict: merge nothing, leave the branch out, or let an agent resolve it. "
            "[default: stop; skip with `--queue`]",
            rich_help_panel=Group.MERGING,
        ),
    ] = None
    unfiltered: Annotated[
        bool,
        typer.Option(
            "--unfiltered",
            help=UNFILTERED,
            rich_help_panel=Group.MERGING,
        ),
    ] = False
    queue: Annotated[
        bool,
        typer.Option(
            "--queue",
            help="Run checks on each merged commit, and leave out branches that fail.",
            rich_help_panel=Group.MERGING,
        ),
    ] = False
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check",
            metavar="CMD",
            help="With `--queue`: command that must succeed on each merged commit; repeatable. "
            "[default: `checks` of the configuration]",
            rich_help_panel=Group.MERGING,
        ),
    ] = None
    tests: Annotated[
        str | None,
        typer.Option(
            "--tests",
            metavar="frozen|extend|free",
            help="With `--queue`, tests that count: the target's, also new tests, or all as "
            "merged. [default: extend]",
            rich_help_panel=Group.MERGING,
        ),
    ] = None
    resolver_task: Annotated[
        str | None,
        typer.Option(
            "--resolver-task",
            metavar="CMD",
            help="With `--on-conflict agent`: prompt or command that resolves a conflict.",
            rich_help_panel=Group.MERGING,
        ),
    ] = None
    allow_path: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-path",
            metavar="GLOB",
            help="With `--on-conflict agent`: files without a conflict that it may change; "
            "repeatable.",
            rich_help_panel=Group.MERGING,
        ),
    ] = None
    config: Config = None
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="BRANCH",
            help="Branch to merge into. [default: the branch that is checked out]",
            rich_help_panel=Group.MERGING,
        ),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print what would be merged, and change nothing.",
            rich_help_panel=Group.COMMON,
        ),
    ] = False
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help="Undo the latest merge, if the branch has not moved since.",
            rich_help_panel=Group.MERGING,
        ),
    ] = False
    report: Report = None
    json: Json = False


@with_settings(only=_OF_AGENT, texts=_OF_AGENT)
def merge(settings: GivenSettings, options: MergeOptions, words: RunAndWorkers = None) -> None:
    """Merge the branches of workers into the branch that is checked out.

    By default, all succeeded workers of the newest run are merged. All merges are computed and
    checked first; then the branch is moved once. The exit code is 1 if any branch is left out.
    """
    form, order, on_conflict = _choices(options, settings)
    wanted, numbers = run_and_workers(words)
    repository = Repository(Path.cwd())
    reports = Reports.requested(options.report, automatic=False)
    if options.undo:
        _undo(repository, options, wanted, numbers)
        return
    if options.queue or on_conflict == "agent":
        request = _request(options, settings, wanted, numbers)
        # Imported only here: nothing else of this command needs the engine and the runs.
        module = import_module("orchestrator.cli.merging_run")
        merged: Merged = module.merge_with_containers(repository, request)
    else:
        run = read_branches(repository, wanted, numbers)
        same = {name: getattr(options, name) for name in _SAME}
        chosen = {"form": form, "order": order, "on_conflict": on_conflict}
        named = bool(numbers)
        wish = Wish(**{**same, **chosen}, named=named, overrules_judgement=named)
        merged = merge_branches(repository, run, wish)
    if options.json:
        show_json(dumps(merged.model_dump(mode="json"), indent=2))
    else:
        show_merged(merged, into=options.into)
    reports.write(merged.run_id, merged=merged)
    if merged.left:
        raise typer.Exit(SOME_LEFT)


def _request(
    options: MergeOptions, settings: GivenSettings, run: str | None, workers: tuple[int, ...]
) -> Any:  # noqa: ANN401 - the class is imported only for a merge with containers
    module = import_module("orchestrator.cli.merging_run")
    return module.MergeRequest(
        run=run,
        workers=workers,
        options={
            **{name: getattr(options, name) for name in _SAME},
            "checks": tuple(options.check or ()),
            "tests": options.tests or "extend",
            "allowed": tuple(options.allow_path or ()),
        },
        queue=options.queue,
        settings=settings,
        task=options.resolver_task,
        file=options.config,
    )


def _choices(options: MergeOptions, settings: GivenSettings) -> tuple[Form, Order, OnConflict]:
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
    _check_agent(options, settings)
    on_conflict = options.on_conflict or ("skip" if options.queue else "stop")
    return options.form, options.order, on_conflict  # type: ignore[return-value]


def _check_queue(options: MergeOptions) -> None:
    if not options.queue and (options.check or options.tests):
        raise ConfigError("`--check` and `--tests` require `--queue`")
    if options.config and not options.queue and options.on_conflict != "agent":
        raise ConfigError("`--config` requires `--queue` or `--on-conflict agent`")
    if not options.queue:
        return
    if options.dry_run or options.undo:
        raise ConfigError("`--queue` cannot be used with `--dry-run` or `--undo`")
    if options.on_conflict == "stop":
        raise ConfigError(
            "`--on-conflict stop` cannot be used with `--queue`: use `skip` or `agent`"
        )


def _check_agent(options: MergeOptions, settings: GivenSettings) -> None:
    if options.on_conflict != "agent":
        if settings or options.resolver_task or options.allow_path:
            raise ConfigError(
                "options of an agent, such as `--agent-cli`, require `--on-conflict agent`"
            )
        return
    if options.dry_run or options.undo:
        raise ConfigError("`--on-conflict agent` cannot be used with `--dry-run` or `--undo`")
    if options.form == "rebase":
        raise ConfigError(
            "`--on-conflict agent` cannot be used with `--as rebase`",
            hint="use `--as merge` or `--as squash`",
        )
    _check_patterns(options.allow_path or ())


def _check_patterns(patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if why := problem(pattern):
            raise ConfigError(
                f"option `--allow-path`: `{one_line(pattern)}`: {why}",
                hint="write the pattern as in `.gitignore`, such as `src/**`",
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
    return find_run(list(all_runs(repository.state_dir)), wanted).run_id
