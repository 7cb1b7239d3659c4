"""Man pages, made from the table of commands; the build of the wheel writes them.

Only the standard library is imported, because the build has no other packages.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from orchestrator.faces.cli.command_table import CommandRow

_WIDTH: Final = 78
"""Maximum length of a line of text in bytes."""
_CODE: Final = re.compile(r"`([^`]+)`")
_SPECIAL: Final = {"\\": "\\e", "-": "\\-", "~": "\\(ti", "^": "\\(ha", "`": "\\(ga"}


def man_pages(commands: Sequence[CommandRow], *, version: str, date: str) -> Mapping[str, str]:
    """Return all man pages by file name, such as `orchestrator-spec-run.1`.

    Args:
        commands: All commands.
        version: The package's version.
        date: The date of the pages, as in 2026-11-26.
    """
    edition = f'"{date}" "orchestrator {version}"'
    pages = {
        f"{_name(row.path)}.1": "".join(f"{line}\n" for line in _page(row, commands, edition))
        for row in commands
    }
    alias = CommandRow(
        path="", help="The short name of orchestrator(1).", usage=commands[0].usage, commands=(),
        parameters=(),
    )  # fmt: skip
    return {**pages, "orch.1": "".join(f"{line}\n" for line in _page(alias, (), edition, "orch"))}


def _name(path: str, program: str = "orchestrator") -> str:
    return "-".join([program, *path.split()])


def _page(
    row: CommandRow, commands: Sequence[CommandRow], edition: str, program: str = "orchestrator"
) -> Iterator[str]:
    name = _name(row.path, program)
    yield f'.TH "{name.upper()}" "1" {edition} "orchestrator manual"'
    yield ".SH NAME"
    yield f"{_escape(name)} \\-"
    yield from _text(row.summary.rstrip("."))
    yield ".SH SYNOPSIS"
    yield f".B {_escape(f'{program} {row.path}'.strip())}"
    yield _escape(row.usage)
    yield ".SH DESCRIPTION"
    yield from _text(row.help)
    arguments = [parameter for parameter in row.parameters if not parameter.names]
    for title, parameters in (
        ("ARGUMENTS", arguments),
        ("OPTIONS", [parameter for parameter in row.parameters if parameter.names]),
    ):
        if parameters:
            yield f".SH {title}"
            for parameter in parameters:
                yield from _list_item(parameter.declared, parameter.help)
    if row.commands:
        yield ".SH COMMANDS"
    for member in row.commands:
        path = f"{row.path} {member}".strip()
        summary = next(command.summary for command in commands if command.path == path)
        yield from _list_item(f"orchestrator {path}", f"{summary} See {_name(path)}(1).")
    if row.commands and not row.path:
        yield ".SH FILES"
        yield from _list_item("orchestrator.yaml", "The project's configuration.")
        yield from _list_item(".git/orchestrator", "Records of runs, and the files of workers.")
    yield ".SH SEE ALSO"
    near = _name("") if row.path or not row.commands else _name("doctor")
    yield f".BR {_escape(near)} (1)"


def _list_item(term: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {_escape(term)}"
    yield from _text(text or "No description.")


def _text(text: str) -> Iterator[str]:
    """Yield the lines of a text of paragraphs; code is bold."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        marked = _CODE.sub(lambda code: f"\1{code[1]}\2", " ".join(paragraph.split()))
        # Wrapped before it is escaped, which makes a line longer but not too long for readers.
        for line in textwrap.wrap(
            marked, _WIDTH // 2, break_long_words=False, break_on_hyphens=False
        ):
            yield _escape(line).replace("\1", "\\fB").replace("\2", "\\fR")


def _escape(text: str) -> str:
    """Escape what roff would interpret: backslashes, hyphens, and a control character in front."""
    coded = "".join(_SPECIAL.get(c, c if ord(c) < 0x7F else f"\\[u{ord(c):04X}]") for c in text)
    return f"\\&{coded}" if coded.startswith((".", "'")) else coded
