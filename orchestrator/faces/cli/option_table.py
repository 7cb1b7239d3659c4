"""Read the tables of the command line options that are settings, or fields of a request.

`docs/check.py --write` derives the tables, `option_table.json`, from the fields, so that `--help`
and the completion of a shell import neither the models nor pydantic.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
SETTINGS = "settings"
"""Name of the settings' table; those of requests have the names of their classes."""


@dataclass(frozen=True, kw_only=True)
class OptionRow:
    """The command line option of one setting or field, as a row of a table."""

    key: str
    """Key of the setting in configuration files, or name of the request's field."""
    flag: str
    """Name of the option, such as `--workers`."""
    former: str | None
    """An earlier name of the option, which is still accepted but not shown."""
    group: str
    """Section of `--help`."""
    metavar: str
    """Placeholder for the option's value in help texts; empty for a switch."""
    help: str
    is_switch: bool
    """Whether the option takes no value, because the setting is a boolean."""
    negatable: bool
    """Whether a switch also has the form `--no-NAME`, because a file may set the value."""
    repeatable: bool
    """Whether the option may be given several times, once for each item."""
    values: tuple[str, ...]
    """The allowed values; empty if the option takes other text."""


@cache
def read_options(table: str = SETTINGS) -> Mapping[str, OptionRow]:
    """Return the options of the settings or of a request by key, in the order of `--help`."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))[table]
    return {row["key"]: OptionRow(**{**row, "values": tuple(row["values"])}) for row in rows}
