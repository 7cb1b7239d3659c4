"""Declare the command line option of a setting, beside the setting's field."""

from dataclasses import dataclass
from enum import StrEnum


class Group(StrEnum):
    """Sections of `--help`, in the order in which they are printed."""

    COMMON = "Common options"
    TASK = "Task"
    AGENT = "Agent"
    LIMITS = "Limits"
    ISOLATION = "Isolation"
    ENVIRONMENT = "Environment"
    PROJECT = "Project"
    RETRIES = "Retries and failures"
    ALERTS = "Alerts"
    MERGING = "Merging"
    JUDGING = "Judging"
    OUTPUT = "Output"


@dataclass(frozen=True)
class Option:
    """The command line option of a setting, as metadata of the setting's field.

    The first sentence of the field's docstring is the help text, unless `help` is set.
    """

    group: Group
    metavar: str = ""
    """Placeholder for the option's value in help texts; not used for a switch."""
    flag: str | None = None
    """Name of the option. Default: the setting's key with `--`."""
    former: str | None = None
    """An earlier name, which is still accepted but not shown."""
    help: str | None = None
    default: str | None = None
    """Text that the help shows as the default. Default: the field's default."""
    repeatable: bool = False
    """Whether the option may be given several times, once for each item, instead of once as
    `a,b,c`.
    """
