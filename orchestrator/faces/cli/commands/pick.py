"""`orchestrator pick`: merge the best worker of a judged run."""

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.config.request import read_request
from orchestrator.faces.cli.landing_arguments import RunAndWorkers, run_and_workers
from orchestrator.faces.cli.options import GivenSettings, Json, OptionsOf, with_options
from orchestrator.faces.cli.output.merge_text import SOME_LEFT, show_merged
from orchestrator.faces.cli.output.messages import show_json, tell
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.pick import candidate_of, merge_candidate
from orchestrator.review.judging.store import latest_judgement
from orchestrator.review.landing.merge import Wish
from orchestrator.review.landing.merge_request import MergeRequest

_TEXTS = {
    "form": "Add the work as a merge commit, one commit, rebased commits, or uncommitted changes. "
    "[default: merge]"
}
_Given = Annotated[
    GivenSettings,
    OptionsOf("MergeRequest", only=("form", "into", "unfiltered", "dry_run"), texts=_TEXTS),
]


@with_options
def pick(given: _Given, words: RunAndWorkers = None, json: Json = False) -> None:
    """Merge the best worker of a judged run, or the worker with the given number.

    Without a number, the exit code is 1 if no worker passes, and 2 if the judgement is undecided;
    nothing is merged then. `orchestrator merge --undo` undoes the merge.
    """
    request = read_request(MergeRequest, given)
    run, numbers = run_and_workers(words)
    if len(numbers) > 1:
        raise ConfigError(
            "only one worker can be picked",
            key="argument.invalid",
            hint="to merge several workers, use `orchestrator merge`",
        )
    repository = Repository(Path.cwd())
    judgement = latest_judgement(repository.state_dir, run)
    chosen = candidate_of(judgement, numbers[0] if numbers else None)
    if chosen is None:
        none = judgement.decision == "none"
        said = "no worker passes" if none else "no worker is clearly the best"
        tell(f"{said}: nothing was merged; `orchestrator compare {judgement.run_id}` shows why")
        raise typer.Exit(judgement.exit_code)
    wish = Wish(request=request, named=True, overrules_judgement=bool(numbers))
    merged = merge_candidate(repository, judgement, chosen, wish, tell)
    if json:
        show_json(dumps(merged.model_dump(mode="json"), indent=2))
    else:
        show_merged(merged, into=request.into)
    if merged.left:
        raise typer.Exit(SOME_LEFT)
