"""Read the table of all commands with their options.

`docs/check.py --write` derives the table, `command_table.json`, from the commands themselves.
Completion scripts and man pages are made from it, without importing a command: the build of the
wheel, which imports this module, has only the standard library.
"""

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """An option or argument of a command."""

    names: tuple[str, ...]
    """Names of an option, such as `--config` and `-c`; empty for an argument."""
    declared: str
    """The option's names and the placeholder for its value, or the argument, as in `--help`."""
    help: str
    values: tuple[str, ...]
    """The allowed values; empty if other text is allowed."""
    kind: str
    """What the value names: a `file`, `directory`, `run`, `worker`, `run or worker`, or `agent`."""
    is_switch: bool
    several: bool
    """Whether an argument takes several values, or an option may be repeated."""


@dataclass(frozen=True, kw_only=True)
class CommandRow:
    """A command, or a group of commands."""

    path: str
    """Words with which the command is called, without the program's name."""
    help: str
    usage: str
    commands: tuple[str, ...]
    """Names of the group's commands; empty for a command."""
    parameters: tuple[ParameterRow, ...]

    @property
    def summary(self) -> str:
        """The first sentence of the help text."""
        return " ".join(self.help.partition("\n\n")[0].split())


def read_commands() -> tuple[CommandRow, ...]:
    """Return all commands, each group before its commands; the first row is the program."""
    return tuple(
        CommandRow(
            **{
                **row,
                "commands": tuple(row["commands"]),
                "parameters": tuple(
                    ParameterRow(
                        **{
                            **parameter,
                            "names": tuple(parameter["names"]),
                            "values": tuple(parameter["values"]),
                        }
                    )
                    for parameter in row["parameters"]
                ),
            }
        )
        for row in json.loads(FILE.read_text(encoding="utf-8"))
    )
