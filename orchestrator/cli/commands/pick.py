"""`orchestrator pick`: merge the best worker of a judged run."""

from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Annotated, get_args

import typer

from orchestrator.cli.landing_arguments import RunAndWorkers, Unfiltered, run_and_workers
from orchestrator.cli.options import Json, with_options
from orchestrator.cli.output.merge_text import SOME_LEFT, show_merged
from orchestrator.cli.output.messages import show_json, tell
from orchestrator.errors import ConfigError
from orchestrator.git.repository import Repository
from orchestrator.judging.judgement import Candidate, Judgement
from orchestrator.judging.pick import candidate_of, merge_candidate
from orchestrator.judging.store import latest_judgement
from orchestrator.landing.merge import Wish
from orchestrator.results import Form
from orchestrator.text.sanitize import one_line

As = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="|".join(get_args(Form)),
        help="Add the work as a merge commit, one commit, rebased commits, or uncommitted changes.",
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into",
        metavar="BRANCH",
        help="Branch to merge into. [default: the branch that is checked out]",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be merged, and change nothing.")
]


@dataclass(frozen=True, kw_only=True)
class PickOptions:
    """Options of `orchestrator pick`."""

    form: As = "merge"
    into: Into = None
    unfiltered: Unfiltered = False
    dry_run: DryRun = False
    json: Json = False


@with_options
def pick(options: PickOptions, words: RunAndWorkers = None) -> None:
    """Merge the best worker of a judged run, or the worker with the given number.

    Without a number, the exit code is 1 if no worker passes, and 2 if the judgement is undecided;
    nothing is merged then. `orchestrator merge --undo` undoes the merge.
    """
    if options.form not in get_args(Form):
        raise ConfigError(
            f"option `--as` is `{one_line(options.form)}`: must be one of "
            f"{', '.join(get_args(Form))}"
        )
    run, numbers = run_and_workers(words)
    if len(numbers) > 1:
        raise ConfigError(
            "only one worker can be picked",
            hint="to merge several workers, use `orchestrator merge`",
        )
    repository = Repository(Path.cwd())
    judgement = latest_judgement(repository.state_dir, run)
    chosen = _chosen(judgement, numbers[0] if numbers else None)
    wish = Wish(
        form=options.form,  # type: ignore[arg-type]
        into=options.into,
        named=True,
        overrules_judgement=bool(numbers),
        dry_run=options.dry_run,
        unfiltered=options.unfiltered,
    )
    merged = merge_candidate(repository, judgement, chosen, wish, tell)
    if options.json:
        show_json(dumps(merged.model_dump(mode="json"), indent=2))
    else:
        show_merged(merged, into=options.into)
    if merged.left:
        raise typer.Exit(SOME_LEFT)


def _chosen(judgement: Judgement, number: int | None) -> Candidate:
    found = candidate_of(judgement, number)
    if found is not None:
        return found
    none = judgement.decision == "none"
    said = "no worker passes" if none else "no worker is clearly the best"
    tell(f"{said}: nothing was merged; `orchestrator compare {judgement.run_id}` shows why")
    raise typer.Exit(judgement.exit_code)
