"""Derive the table of all commands with their options, for completion scripts and man pages."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer.main

from orchestrator.faces.cli.app import app
from orchestrator.faces.cli.command_table import CommandRow, ParameterRow
from orchestrator.faces.cli.option_table import FILE, read_options

_FILES = frozenset({"FILE", "PATH"})
_WORKERS = frozenset({"worker", "workers"})


def table() -> str:
    """Return the table as JSON."""
    rows = [asdict(row) for row in _rows(typer.main.get_command(app), "")]
    return json.dumps(rows, indent=1) + "\n"


def _rows(command: Any, path: str) -> Iterator[CommandRow]:
    context = command.context_class(command, info_name=f"orchestrator {path}".strip())
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    yield CommandRow(
        path=path,
        help=(command.help or "").strip(),
        usage=" ".join(command.collect_usage_pieces(context)),
        commands=tuple(names),
        parameters=tuple(
            _parameter(one, context)
            for one in command.get_params(context)
            if not getattr(one, "hidden", False)
        ),
    )
    for name in names:
        yield from _rows(command.get_command(context, name), f"{path} {name}".strip())


def _parameter(one: Any, context: Any) -> ParameterRow:
    declared, text = one.get_help_record(context) or ("", "")
    is_option = one.param_type_name == "option"
    return ParameterRow(
        names=(*one.opts, *one.secondary_opts) if is_option else (),
        declared=declared,
        help=text,
        values=_values(one),
        kind=_kind(one, is_option=is_option),
        is_switch=bool(is_option and one.is_flag),
        several=bool(one.multiple or one.nargs == -1),
    )


def _values(one: Any) -> tuple[str, ...]:
    for table in json.loads(FILE.read_text(encoding="utf-8")):
        of_option = {row.flag: row.values for row in read_options(table).values()}
        for name in one.opts:
            if of_option.get(name):
                return of_option[name]
    annotation = getattr(one.type_descriptor, "annotation", None)
    kinds = getattr(annotation, "__args__", None) or (annotation,)
    return tuple(
        str(value)
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, StrEnum)
        for value in kind
    )


def _kind(one: Any, *, is_option: bool) -> str:
    metavar = one.metavar or ""
    if "--agent-cli" in one.opts:
        return "agent"
    if metavar == "DIR":
        return "directory"
    if metavar in _FILES or getattr(one.type_descriptor, "annotation", None) is Path:
        return "file"
    if metavar == "RUN" or "--run" in one.opts:
        return "run"
    if metavar.startswith("[RUN]"):
        return "run or worker"
    return "worker" if not is_option and one.name in _WORKERS else ""
