"""`orchestrator ls`: list runs."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.faces.cli.options import Json
from orchestrator.faces.cli.output.messages import tell
from orchestrator.repository.repository import Repository


def ls(
    everything: Annotated[
        bool,
        typer.Option(
            "-a", "--all", help="Include runs without remaining worktrees, branches or containers."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """List runs, newest last, with their worktrees, branches and containers."""
    repository = Repository(Path.cwd())
    if json or any(repository.state_dir.glob("runs/*")):
        # Imported here because the models of runs take as long to build as all of the command.
        from orchestrator.faces.cli.output.run_list import show_runs

        shown = show_runs(repository, everything=everything, as_json=json)
    else:
        shown = False
    if not shown:
        tell(
            "no run has any worktree, branch or container; `--all` lists every run"
            if not everything
            else "there are no runs yet"
        )
