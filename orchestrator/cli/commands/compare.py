"""`orchestrator compare`: show how the workers of a run were ranked."""

from pathlib import Path

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output.judgement_table import judgement_text
from orchestrator.cli.output.messages import show, show_json
from orchestrator.cli.run_arguments import Run
from orchestrator.git.repository import Repository
from orchestrator.judging.store import latest_judgement


def compare(run: Run = None, json: Json = False) -> None:
    """Show the latest judgement of a run, without running anything.

    By default, it is the newest run that was judged. The exit code is that of the judgement.
    """
    judgement = latest_judgement(Repository(Path.cwd()).state_dir, run)
    if json:
        show_json(judgement.model_dump_json(indent=2))
    else:
        show(judgement_text(judgement))
    raise typer.Exit(judgement.exit_code)
