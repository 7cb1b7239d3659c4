"""Derive the table of command line options from the fields of the settings."""

import json
from dataclasses import asdict
from typing import Literal, get_args, get_origin

from orchestrator.cli.option_table import OptionRow
from orchestrator.cli.output.formats import size
from orchestrator.config.fields import FIELDS, OPTIONS, FieldPath, field_info, flag, model_of
from orchestrator.config.option import Option
from orchestrator.config.values import field_docstrings


def table() -> str:
    """Return the table as JSON."""
    rows = [asdict(_row(key, option)) for key, option in OPTIONS.items()]
    return json.dumps(rows, indent=1) + "\n"


def _row(key: str, option: Option) -> OptionRow:
    field = FIELDS[key]
    annotation = field_info(field).annotation
    kinds = [annotation, *get_args(annotation)]
    values = (
        str(value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)
    )
    return OptionRow(
        key=key,
        flag=flag(key),
        former=option.former,
        group=option.group,
        metavar=option.metavar,
        help=_help(field, option),
        is_switch=annotation is bool,
        repeatable=option.repeatable,
        values=tuple(values),
    )


def _help(field: FieldPath, option: Option) -> str:
    docstring = field_docstrings(model_of(field)).get(field[-1], "")
    text = option.help or docstring.partition(". ")[0].partition(".\n")[0]
    default = option.default or _shown(field_info(field).default, is_size=option.metavar == "SIZE")
    text = " ".join(text.split()).removesuffix(".") + "."
    return f"{text} [default: {default}]" if default else text


def _shown(default: object, *, is_size: bool) -> str:
    if isinstance(default, bool) or not isinstance(default, (int, float, str)):
        return ""
    if is_size and isinstance(default, int):
        return size(default)
    if isinstance(default, float):
        return f"{default:g}"
    return str(default)
