"""Derive the tables of command line options from the fields of the settings and of requests."""

import json
from dataclasses import asdict
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from orchestrator.config.fields import FIELDS, OPTIONS, field_info, flag, model_of
from orchestrator.config.request import option_flag, request_fields, request_options
from orchestrator.config.settings.option import Option
from orchestrator.config.settings.values import field_docstrings
from orchestrator.faces.cli.option_table import SETTINGS, OptionRow
from orchestrator.faces.cli.output.formats import size
from orchestrator.review.judging.judge_request import JudgingRules, Rounds
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.sandbox.models import SandboxLimits, Submission, Template

REQUESTS: tuple[type, ...] = (
    *(MergeRequest, JudgingRules, Rounds),
    *(SandboxLimits, Template, Submission),
)


def table() -> str:
    """Return the tables as JSON."""
    rows = {SETTINGS: [_setting_row(key, option) for key, option in OPTIONS.items()]}
    rows |= {kind.__name__: list(_request_rows(kind)) for kind in REQUESTS}
    dumped = {name: [asdict(row) for row in table] for name, table in rows.items()}
    return json.dumps(dumped, indent=1) + "\n"


def _setting_row(key: str, option: Option) -> OptionRow:
    field = FIELDS[key]
    docstring = field_docstrings(model_of(field)).get(field[-1], "")
    return _row(key, flag(key), option, field_info(field), docstring, negatable=True)


def _request_rows(kind: type) -> list[OptionRow]:
    fields, docstrings = request_fields(kind), field_docstrings(kind)
    return [
        _row(name, option_flag(name, option), option, fields[name], docstrings.get(name, ""))
        for name, option in request_options(kind).items()
    ]


def _row(
    key: str, name: str, option: Option, info: FieldInfo, docstring: str, *, negatable: bool = False
) -> OptionRow:
    kinds = [info.annotation, *get_args(info.annotation)]
    values = [
        str(value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)
    ]
    text = option.help or docstring.partition(". ")[0].partition(".\n")[0]
    text = " ".join(text.split()).removesuffix(".") + "."
    default = option.default or _shown(info.default, is_size=option.metavar == "SIZE")
    is_switch = info.annotation is bool
    return OptionRow(
        key=key,
        flag=name,
        former=option.former,
        group=option.group,
        metavar=option.metavar or "|".join(values),
        help=f"{text} [default: {default}]" if default else text,
        is_switch=is_switch,
        negatable=is_switch and negatable,
        repeatable=option.repeatable,
        values=tuple(values),
    )


def _shown(default: object, *, is_size: bool) -> str:
    if isinstance(default, bool) or not isinstance(default, (int, float, str)):
        return ""
    if is_size and isinstance(default, int):
        return size(default)
    if isinstance(default, float):
        return f"{default:g}"
    return str(default)
