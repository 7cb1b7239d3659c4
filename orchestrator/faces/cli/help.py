"""Commands as typer runs them: the format of `--help`, and plain conversion of values."""

import re
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand

from orchestrator.config.settings.option import Group

_TYPE = re.compile(r" <.*>$")
"""Pattern of the value type that typer appends to the name of an argument."""
_NO_BRACES = str.maketrans("", "", "{}")
_FEW = 15
"""Number of options up to which `--help` lists them without sections."""


class GroupedCommand(TyperCommand):
    """A command that lists its options in sections, in the order of `Group`."""

    def get_params(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Return the parameters of the command, which convert values without pydantic."""
        parameters = super().get_params(ctx)
        convert_plainly(parameters)
        return parameters

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the arguments for the usage line, without the braces that typer adds."""
        return [piece.translate(_NO_BRACES) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Write a section for the arguments, and one for each group of options."""
        grouped = len(self.params) > _FEW
        sections: dict[str, list[tuple[str, str]]] = {
            title: [] for title in ("Arguments", "Options", *Group)
        }
        for parameter in self.get_params(ctx):
            name, text = parameter.get_help_record(ctx) or ("", "")
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((_TYPE.sub("", name), text))
            elif name:
                own = Group.OUTPUT if parameter.name == "help" else "Options"
                panel = getattr(parameter, "rich_help_panel", None) or own
                sections[panel if grouped else "Options"].append((name, text))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class PlainValues:
    """Conversion of one parameter's values that replaces the conversion by typer.

    Typer builds a pydantic adapter for every parameter of a command, even for those that are not
    given. Nearly all parameters take text, which stays as it is.
    """

    def __init__(self, parameter: Any) -> None:  # noqa: ANN401
        self._parameter = parameter

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:  # noqa: ANN401
        """Return the converted value; same interface as typer's `RuntimeParam.coerce`."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        kind = param.type_descriptor.annotation
        if kind is str and not several and isinstance(value, str):
            return value
        if kind == list[str] and isinstance(value, (tuple, list)):
            return list(value)
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


def convert_plainly(parameters: Iterable[Any]) -> None:
    """Make parameters convert their values with `PlainValues`, which is faster.

    If typer's parameters lack the private attribute `_runtime_param`, typer converts the values.
    """
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", parameter) is None:
            parameter._runtime_param = PlainValues(parameter)
