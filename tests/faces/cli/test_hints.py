"""Every option that a hint names exists on the command that it names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import orchestrator
from orchestrator.faces.cli.app import app

ROOT = Path(orchestrator.__file__).parent
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_OURS = re.compile(r"orchestrator ((?:[a-z][a-z-]* ?)+)(.*)")
OF_COMMANDS = {
    "review/landing/pull_requests.py": ("pr",),
    "review/landing/forges.py": ("pr",),
    "review/landing/stack.py": ("pr",),
    "review/landing/land.py": ("merge", "pick"),
    "review/landing/target.py": ("merge", "pick", "parallel", "spec run", "eval"),
    "review/landing/checkout.py": ("merge", "pick", "parallel", "spec run", "eval"),
    "runs/planning/preflight.py": ("parallel", "spec run"),
    "runs/planning/naming.py": ("parallel", "spec run"),
    "repository/checkouts/in_progress.py": ("parallel", "spec run"),
    "engine/egress.py": ("parallel", "spec run"),
}
"""The commands whose users see the hints of a module: an option must exist on all of them. A module
of `cli/commands` is seen by its own command, any other module by at least one command with the
option.
"""


OF_OTHERS = ("--volume",)
"""Options of `docker run`."""


def commands() -> dict[str, frozenset[str]]:
    def walk(command: Any, name: str) -> Iterator[tuple[str, frozenset[str]]]:
        words = (word for one in command.params for word in (*one.opts, *one.secondary_opts))
        yield name, frozenset(words) | {"--help"}
        if hasattr(command, "list_commands"):
            context = command.context_class(command)
            for part in command.list_commands(context):
                yield from walk(command.get_command(context, part), f"{name} {part}".strip())

    return dict(walk(typer.main.get_command(app), ""))


def hints() -> Iterator[tuple[str, str]]:
    """Yield each text in backticks of a hint, with its module."""
    for path in sorted(ROOT.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            for keyword in getattr(call, "keywords", ()) if isinstance(call, ast.Call) else ():
                if keyword.arg == "hint":
                    inner = (getattr(one, "value", None) for one in ast.walk(keyword.value))
                    text = "".join(one for one in inner if isinstance(one, str))
                    for quoted in re.findall(r"`([^`]+)`", text):
                        yield str(path.relative_to(ROOT)), quoted


def unknown(module: str, quoted: str, known: dict[str, frozenset[str]]) -> list[str]:
    """Return the options in a quotation that do not exist."""
    ours = _OURS.match(quoted)
    if ours:
        words = ours[1].split()
        name = next(n for k in range(len(words), -1, -1) if (n := " ".join(words[:k])) in known)
        return [one for one in _OPTION.findall(ours[2]) if name and one not in known[name]]
    if not quoted.startswith("--"):
        return []
    options = [one for one in _OPTION.findall(quoted) if one not in OF_OTHERS]
    if module in OF_COMMANDS:
        seen = [known[name] for name in OF_COMMANDS[module]]
        return [one for one in options if not all(one in words for words in seen)]
    own = Path(module).stem.replace("_", " ") if module.startswith("faces/cli/commands/") else ""
    some = [words for name, words in known.items() if f"{name} ".startswith(f"{own} ".lstrip())]
    return [one for one in options if not any(one in words for words in some)]


def test_options_in_hints_exist() -> None:
    known = commands()
    found = [*hints()]
    assert len(found) > 100
    wrong = [(m, q, bad) for m, q in found if (bad := unknown(m, q, known))]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "quoted"),
    [
        ("review/landing/target.py", "--into"),
        ("repository/x.py", "orchestrator merge 1 --no-such-option"),
        ("faces/cli/commands/stop.py", "--queue"),
        ("repository/x.py", "--no-such-option"),
    ],
)
def test_wrong_hint_is_found(module: str, quoted: str) -> None:
    assert unknown(module, quoted, commands())
