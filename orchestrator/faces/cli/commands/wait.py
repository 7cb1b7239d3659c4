"""`orchestrator wait`: wait for the end of a run."""

import typer

from orchestrator.faces.cli.options import Json
from orchestrator.faces.cli.run_arguments import Run, follow, open_run, show_ending


def wait(
    run: Run = None,
    json: Json = False,
) -> None:
    """Wait for the end of a run, then print its result and exit with its exit code."""
    with open_run(run) as history:
        follow(lambda: False, is_live=history.directory.is_live)
        raise typer.Exit(show_ending(history, as_json=json))
