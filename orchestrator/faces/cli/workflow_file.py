"""Read the arguments of the `spec` commands, and print notices about a workflow file."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.workflow.parsing.reader import Reading
from orchestrator.config.workflow.selection import only, starting_at
from orchestrator.faces.cli.output.messages import tell


def variables(given: Sequence[str]) -> dict[str, str]:
    """Return the variables given with `--var NAME=VALUE`, by name."""
    values: dict[str, str] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            shown = one_line(entry, limit=60)
            raise ConfigError(
                f"option `--var` is `{shown}`: must be `NAME=VALUE`", key="option.invalid"
            )
        values[name] = value
    return values


def select_part(reading: Reading, only_: Sequence[str], from_: Sequence[str]) -> Reading:
    """Return the selected part of a workflow.

    Args:
        reading: The whole parsed workflow file.
        only_: Ids of the tasks given with `--only`.
        from_: Ids of the tasks given with `--from`.
    """
    if only_ and from_:
        raise ConfigError(
            "options `--only` and `--from` cannot be used together", key="option.conflict"
        )
    if not only_ and not from_:
        return reading
    part = only(reading.workflow, only_) if only_ else starting_at(reading.workflow, from_)
    return replace(
        reading, workflow=part.workflow, notices=(*reading.notices, *part.notices), warnings=()
    )


def tell_about(reading: Reading) -> None:
    """Print the notices and warnings about a workflow file."""
    for notice in reading.notices:
        tell(one_line(notice, limit=400))
    for warning in reading.warnings:
        tell(f"warning: {one_line(warning, limit=400)}")
