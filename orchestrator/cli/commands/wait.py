"""`orchestrator wait`."""

from typing import Annotated

import typer

from orchestrator.cli.run_arguments import Run, follow, open_run, show_ending


def wait(
    run: Run = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, not a table.")] = False,
) -> None:
    """Wait for a run's end, and end as its own command would: same output, same exit code."""
    with open_run(run) as history:
        follow(lambda: False, goes_on=history.directory.is_live)
        raise typer.Exit(show_ending(history, as_json=json))
