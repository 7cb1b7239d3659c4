"""`orchestrator completion`: print a completion script for a shell."""

import os
from enum import StrEnum
from typing import Annotated, Any

import typer

from orchestrator.cli.completion import VARIABLE, complete


class Shell(StrEnum):
    """Shells for which there is a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[
        Shell, typer.Argument(metavar="SHELL", help="Shell: `bash`, `zsh` or `fish`.")
    ],
) -> None:
    """Print a script that completes commands, options and their values in a shell.

    For bash, add this line to ~/.bashrc: eval "$(orchestrator completion bash)"
    """
    group: Any = context.find_root().command
    os.environ[VARIABLE] = f"source_{shell}"
    try:
        code = complete(group)
    finally:
        del os.environ[VARIABLE]
    raise typer.Exit(code)
