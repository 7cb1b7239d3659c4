"""`orchestrator merge`: merge workers' branches into the user's branch."""

from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.config.request import read_request
from orchestrator.config.settings.option import Group
from orchestrator.faces.cli.landing_arguments import RunAndWorkers, run_and_workers
from orchestrator.faces.cli.options import (
    Config,
    GivenSettings,
    Json,
    OptionsOf,
    Report,
    with_settings,
)
from orchestrator.faces.cli.output.merge_text import SOME_LEFT, show_merged
from orchestrator.faces.cli.output.messages import show, show_json
from orchestrator.faces.cli.reporting import Reports
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import read_branches
from orchestrator.review.landing.land import undo as take_back
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.state.record.history import find_run
from orchestrator.state.run_directory import all_runs

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
_SHORT = 12


@dataclass(frozen=True, kw_only=True)
class MergeCommand:
    """Options of `orchestrator merge` that are not part of the request."""

    queue: Annotated[
        bool,
        typer.Option(
            "--queue",
            help="Run checks on each merged commit, and leave out branches that fail.",
            rich_help_panel=Group.MERGING,
        ),
    ] = False
    resolver_task: Annotated[
        str | None,
        typer.Option(
            "--resolver-task",
            metavar="CMD",
            help="With `--on-conflict agent`: prompt or command that resolves a conflict.",
            rich_help_panel=Group.MERGING,
        ),
    ] = None
    config: Config = None
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
def merge(
    settings: GivenSettings,
    given: Annotated[GivenSettings, OptionsOf("MergeRequest")],
    options: MergeCommand,
    words: RunAndWorkers = None,
) -> None:
    """Merge the branches of workers into the branch that is checked out.

    By default, all succeeded workers of the newest run are merged. All merges are computed and
    checked first; then the branch is moved once. The exit code is 1 if any branch is left out.
    """
    _check_options(given, options, settings)
    request = read_request(MergeRequest, given)
    run, numbers = run_and_workers(words)
    repository = Repository(Path.cwd())
    reports = Reports.from_options(options.report, automatic=False)
    if options.undo:
        if numbers or request.dry_run or options.report:
            raise ConfigError(
                "`--undo` takes a whole merge back: it cannot be used with numbers, `--dry-run` "
                "or `--report`",
                key="option.conflict",
            )
        _undo(repository, request.into, run, as_json=options.json)
        return
    if options.queue or request.on_conflict == "agent":
        # Imported here because no other merge needs the engine and the runs.
        from orchestrator.faces.cli import merging_run

        file, task = options.config, options.resolver_task
        if options.queue:
            request = merging_run.with_checks(repository, request, file)
        if request.on_conflict == "agent":
            request = merging_run.with_agent(repository, request, settings, task, file)
        merged = merging_run.merge_with_containers(repository, request, run, numbers, file)
    else:
        named = bool(numbers)
        wish = Wish(request=request, named=named, overrules_judgement=named)
        merged = merge_branches(repository, read_branches(repository, run, numbers), wish)
    if options.json:
        show_json(dumps(merged.model_dump(mode="json"), indent=2))
    else:
        show_merged(merged, into=request.into)
    reports.write(merged.run_id, merged=merged)
    if merged.left:
        raise typer.Exit(SOME_LEFT)


def _check_options(given: GivenSettings, options: MergeCommand, settings: GivenSettings) -> None:
    on_conflict, changes_nothing = given.get("on_conflict"), given.get("dry_run") or options.undo
    if on_conflict == "agent" and changes_nothing:
        raise ConfigError(
            "`--on-conflict agent` cannot be used with `--dry-run` or `--undo`",
            key="option.conflict",
        )
    if on_conflict != "agent" and (settings or options.resolver_task or given.get("allowed")):
        raise ConfigError(
            "options of an agent, such as `--agent-cli`, require `--on-conflict agent`",
            key="option.incomplete",
        )
    if not options.queue and not given.keys().isdisjoint(("checks", "tests")):
        raise ConfigError("`--check` and `--tests` require `--queue`", key="option.incomplete")
    if options.config and not options.queue and on_conflict != "agent":
        raise ConfigError(
            "`--config` requires `--queue` or `--on-conflict agent`", key="option.incomplete"
        )
    if not options.queue:
        return
    if changes_nothing:
        raise ConfigError(
            "`--queue` cannot be used with `--dry-run` or `--undo`", key="option.conflict"
        )
    if on_conflict == "stop":
        raise ConfigError(
            "`--on-conflict stop` cannot be used with `--queue`: use `skip` or `agent`",
            key="option.conflict",
        )


def _undo(repository: Repository, into: str | None, wanted: str | None, *, as_json: bool) -> None:
    runs = list(all_runs(repository.state_dir))
    run_id = None if wanted is None else find_run(runs, wanted).run_id
    landed = take_back(repository, into=into, run_id=run_id)
    if as_json:
        show_json(dumps(landed.model_dump(mode="json", exclude={"previous"}), indent=2))
        return
    workers = ", ".join(str(number) for number in landed.workers)
    place = f"{landed.branch} is at {landed.before[:_SHORT]} again"
    show(f"undid the merge of worker {workers}: {place}")
