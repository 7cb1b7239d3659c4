"""`orchestrator compare`: show how the workers of a run were ranked."""

from pathlib import Path

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.faces.cli.landing_arguments import RunAndWorkers, run_and_workers
from orchestrator.faces.cli.options import Json
from orchestrator.faces.cli.output.judgement_table import judgement_text, pair_text
from orchestrator.faces.cli.output.messages import show, show_json
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.pair import pair_of
from orchestrator.review.judging.store import latest_judgement


def compare(words: RunAndWorkers = None, json: Json = False) -> None:
    """Show the latest judgement of a run, or compare two of its workers; nothing is run.

    The default is the newest run that was judged. The exit code is that of the judgement.
    """
    run, numbers = run_and_workers(words)
    if len(numbers) not in (0, 2):
        raise ConfigError(
            "name two workers to compare them, or no worker for the whole judgement",
            key="argument.invalid",
        )
    repository = Repository(Path.cwd())
    judgement = latest_judgement(repository.state_dir, run)
    pair = pair_of(repository, judgement, *numbers) if numbers else None
    if json:
        show_json((pair or judgement).model_dump_json(indent=2))
    elif pair is not None:
        show(pair_text(pair))
    else:
        show(judgement_text(judgement))
    raise typer.Exit(judgement.exit_code)
