"""The names of all commands."""

from collections.abc import Iterator

import typer

from orchestrator.faces.cli.app import COMMANDS, _Group, _load


def commands() -> Iterator[str]:
    """Yield the name of every command: `ls`, or `image build` for a member of a group."""
    for name, command in COMMANDS.items():
        app = None if isinstance(command, _Group) else _load(command)
        if isinstance(command, _Group):
            yield from (f"{name} {member}" for member in command.commands)
        elif isinstance(app, typer.Typer):
            for one in app.registered_commands:
                yield f"{name} {one.name or one.callback.__name__}"  # type: ignore[union-attr]
        else:
            yield name
