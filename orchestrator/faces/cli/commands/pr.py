"""`orchestrator pr`: publish workers' branches as pull requests."""

from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import lines, one_line
from orchestrator.faces.cli.feedback import ForgeOption, RemoteOption, check_forge
from orchestrator.faces.cli.landing_arguments import RunAndWorkers, run_and_workers
from orchestrator.faces.cli.options import Json, with_options
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.repository.remotes import Remote
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.pick import candidate_of, read_judged_branch
from orchestrator.review.judging.store import latest_judgement
from orchestrator.review.landing.branches import RunBranches, read_branches
from orchestrator.review.landing.forges import find_forge
from orchestrator.review.landing.pull_requests import (
    Published,
    PublishedWorker,
    PullRequestWish,
    publish,
)
from orchestrator.review.landing.target import current_branch


@dataclass(frozen=True, kw_only=True)
class PullRequestOptions:
    """Options of `orchestrator pr`."""

    stack: Annotated[
        bool,
        typer.Option(
            "--stack",
            help="Open a worker's pull request into the branch of the worker whose work it "
            "builds on.",
        ),
    ] = False
    best: Annotated[
        bool,
        typer.Option("--best", help="Publish the worker that the latest judgement picked."),
    ] = False
    keep_commits: Annotated[
        bool,
        typer.Option(
            "--keep-commits",
            help="Push the workers' own commits, and list what a forge may do by their messages. "
            "[default: one commit of yours with all changes]",
        ),
    ] = False
    draft: Annotated[bool, typer.Option("--draft", help="Create draft pull requests.")] = False
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="BRANCH",
            help="Remote branch to merge into. [default: name of the branch that is checked out]",
        ),
    ] = None
    remote: RemoteOption = None
    forge: ForgeOption = None
    unfiltered: Annotated[
        bool,
        typer.Option(
            "--unfiltered",
            help="Also accept files for which a required filter of git, such as encryption, did "
            "not run.",
        ),
    ] = False
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the commands that would run, and change nothing."),
    ] = False
    json: Json = False


@with_options
def pr(options: PullRequestOptions, words: RunAndWorkers = None) -> None:
    """Push workers' branches to a remote repository, and open a pull request for each.

    `gh` or `glab` runs on this machine with your account. Branches are never pushed with force.
    Repeating the command updates the pull requests.
    """
    wanted, numbers = run_and_workers(words)
    check_forge(options.forge)
    if bool(numbers) is options.best:
        raise ConfigError(
            "name the workers to publish, or give `--best`",
            key="worker.unnamed",
            hint="to publish the branch of worker 2: `orchestrator pr 2`",
        )
    repository = Repository(Path.cwd())
    best = options.best
    chosen = _best(repository, wanted) if best else read_branches(repository, wanted, numbers)
    remote = Remote(repository, options.remote)
    forge = find_forge(repository.top, remote.url, options.forge, installed=not options.dry_run)
    wish = PullRequestWish(
        workers=tuple(branch.worker_id for branch in chosen.branches),
        target=options.into or current_branch(repository),
        stack=options.stack,
        keep_commits=options.keep_commits,
        is_best=options.best,
        draft=options.draft,
        dry_run=options.dry_run,
        unfiltered=options.unfiltered,
    )
    # The other workers of the run may be below the chosen ones in a stack.
    run = read_branches(repository, chosen.run_id)
    published = publish(repository, run, wish, remote, forge)
    if options.json:
        show_json(dumps(published.model_dump(mode="json"), indent=2))
    else:
        _show(published, lists_commits=options.keep_commits)


def _best(repository: Repository, run: str | None) -> RunBranches:
    """Return the branch of the worker that the latest judgement picked.

    Raises:
        ConfigError: The worker's branch has moved since the judgement.
        typer.Exit: No worker was picked.
    """
    judgement = latest_judgement(repository.state_dir, run)
    chosen = candidate_of(judgement)
    if chosen is None:
        tell(
            "no worker is clearly the best: nothing was published; "
            f"`orchestrator compare {judgement.run_id}` shows why"
        )
        raise typer.Exit(judgement.exit_code)
    return read_judged_branch(repository, judgement, chosen)


def _show(published: Published, *, lists_commits: bool) -> None:
    for worker in published.workers:
        for sent in worker.sent if lists_commits else ():
            acts = f" ({', '.join(sent.effects)})" if sent.effects else ""
            tell(
                f"worker {worker.worker_id}: {sent.commit[:12]} {sent.author}: {sent.subject}{acts}"
            )
        if worker.commands:
            for command in worker.commands:
                show(lines(command))
            continue
        show(f"worker {worker.worker_id}: {_said(worker)}")
        if worker.note:
            tell(f"worker {worker.worker_id}: {worker.note}")


def _said(worker: PublishedWorker) -> str:
    if worker.action == "contained":
        return "the target has the work already"
    where = f"{worker.head} into {worker.base}"
    if worker.action == "pushed":
        return f"pushed {where}; the text of its pull request was edited, so it is unchanged"
    return f"{worker.action} {one_line(worker.url or 'a pull request')} ({where})"
