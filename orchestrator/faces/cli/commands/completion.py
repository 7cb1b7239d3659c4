"""`orchestrator completion`: print a completion script for a shell."""

from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.faces.cli.command_table import read_commands
from orchestrator.faces.cli.completion import script
from orchestrator.faces.cli.output.messages import show_document


class Shell(StrEnum):
    """Shells for which there is a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell, typer.Argument(metavar="SHELL", help="Shell: `bash`, `zsh` or `fish`.")
    ],
) -> None:
    """Print a script that completes commands, options and their values in a shell.

    For bash, add this line to ~/.bashrc: eval "$(orchestrator completion bash)"
    """
    # Imported here because only this command needs it, for which the start of a shell waits.
    from importlib.metadata import entry_points

    agents = sorted(entry_points(group="orchestrator.agents").names)
    show_document(script(shell.value, read_commands(), agents))
