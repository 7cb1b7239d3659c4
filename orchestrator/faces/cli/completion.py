"""Completion scripts of shells: static texts, which never start Python.

A script knows all commands and options. It takes ids of runs and numbers of workers from the names
of directories in the repository.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestrator.faces.cli.command_table import CommandRow, ParameterRow

_TEMPLATES: Final = Path(__file__).with_name("shells")
_KINDS: Final = {
    "file": "@file",
    "directory": "@directory",
    "run": "@run",
    "worker": "@worker",
    "run or worker": "@run@worker",
}


def script(shell: str, commands: Sequence[CommandRow], agents: Sequence[str]) -> str:
    """Return the completion script of a shell.

    Args:
        shell: `bash`, `zsh` or `fish`.
        commands: All commands.
        agents: Names of agent programs, which other packages can add.
    """
    summaries = {row.path: row.summary for row in commands}
    cases = (_case(shell, row, summaries, agents) for row in commands)
    template = (_TEMPLATES / f"{shell}.txt").read_text(encoding="utf-8")
    return template.replace("@CASES@\n", "".join(cases))


def _case(shell: str, row: CommandRow, summaries: Mapping[str, str], agents: Sequence[str]) -> str:
    """Return the part of a script that knows one command.

    It sets three lists: what the values of options and arguments are, the commands of a group, and
    the options. The last two have texts if the shell shows texts.
    """
    options = [(name, parameter) for parameter in row.parameters for name in parameter.names]
    of_members = ((name, summaries[f"{row.path} {name}".strip()]) for name in row.commands)
    lists = {
        "items": [
            f"{name}{_value(parameter, agents)}" for name, parameter in (*options, *_arguments(row))
        ],
        "members": [_describe(shell, *member) for member in of_members],
        "flags": [_describe(shell, name, parameter.help) for name, parameter in options],
    }
    if shell == "fish":
        lines = (f"      set __orchestrator_{name} {_quote(shell, words)}\n"
                 for name, words in lists.items())  # fmt: skip
        return f"    case {_quote(shell, [row.path])}\n" + "".join(lines)
    if shell == "bash":
        del lists["flags"]
    lines = (f"      {name}=({_quote(shell, words)})\n" for name, words in lists.items())
    return f"    {shlex.quote(row.path)})\n" + "".join(lines) + "      ;;\n"


def _arguments(row: CommandRow) -> Iterable[tuple[str, ParameterRow]]:
    """Yield the arguments, each after its position; `*` for one that takes all further words."""
    arguments = [parameter for parameter in row.parameters if not parameter.names]
    return [
        ("*" if argument.several else str(n), argument)
        for n, argument in enumerate(arguments, start=1)
    ]


def _value(parameter: ParameterRow, agents: Sequence[str]) -> str:
    """Return how a value is completed: nothing for a switch, else `=` and the values or a kind."""
    if parameter.is_switch:
        return ""
    values = agents if parameter.kind == "agent" else parameter.values
    return "=" + ("|".join(values) if values else _KINDS.get(parameter.kind, ""))


def _describe(shell: str, name: str, text: str) -> str:
    return {"bash": name, "zsh": f"{name}:{text}", "fish": f"{name}\t{text}"}[shell]


def _quote(shell: str, words: Iterable[str]) -> str:
    if shell != "fish":
        return shlex.join(words)
    escaped = (word.replace("\\", "\\\\").replace("'", "\\'") for word in words)
    return " ".join(f"'{word}'" for word in escaped)
