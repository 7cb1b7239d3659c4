"""Arguments of the commands that compare and merge the branches of a run."""

from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line

_MOST_DIGITS = 6
"""Maximum number of digits of a worker's number; a longer number is the first part of a run's id.
"""

_HELP = "Id of the run, or its first characters, and numbers of workers."
RunAndWorkers = Annotated[list[str] | None, typer.Argument(metavar="[RUN] [N]", help=_HELP)]
AllByDefault = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN] [N]", help=f"{_HELP} [default: all workers of the newest run]"),
]


def run_and_workers(words: list[str] | None) -> tuple[str | None, tuple[int, ...]]:
    """Split arguments into the run's id, if one is given, and numbers of workers.

    Raises:
        ConfigError: The arguments name several runs, or a worker 0.
    """
    given = words or []
    numbers = [word for word in given if _is_number(word)]
    runs = [word for word in given if not _is_number(word)]
    if len(runs) > 1:
        shown = f"`{one_line(runs[0])}` and `{one_line(runs[1])}`"
        raise ConfigError(
            f"{shown} are not numbers of workers, and only one run can be named",
            key="argument.invalid",
            hint="name a run and workers: `20260102-030405-abcdef 1 2`",
        )
    if any(int(number) == 0 for number in numbers):
        raise ConfigError("there is no worker 0: workers are numbered from 1", key="worker.unknown")
    return (runs[0] if runs else None), tuple(dict.fromkeys(int(number) for number in numbers))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS
