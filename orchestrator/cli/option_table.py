"""Read the table of the command line options that are settings.

`docs/check.py --write` derives the table, `option_table.json`, from the fields of the settings, so
that `--help` and the completion of a shell import neither the models of the settings nor pydantic.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, kw_only=True)
class OptionRow:
    """The command line option of one setting, as a row of the table."""

    key: str
    """Key of the setting in configuration files."""
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
    repeatable: bool
    """Whether the option may be given several times, once for each item."""
    values: tuple[str, ...]
    """The allowed values; empty if the option takes other text."""


@cache
def read_options() -> Mapping[str, OptionRow]:
    """Return the settings' options by key of the setting, in the order of `--help`."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return {row["key"]: OptionRow(**{**row, "values": tuple(row["values"])}) for row in rows}
