"""Format the options of a command for `--help`."""

import re
from typing import Any

import typer
from typer.core import TyperCommand

from orchestrator.cli.conversion import convert_plainly
from orchestrator.config.option import Group

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
                panel = getattr(parameter, "rich_help_panel", None) or Group.OUTPUT
                sections[panel if grouped else "Options"].append((name, text))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
