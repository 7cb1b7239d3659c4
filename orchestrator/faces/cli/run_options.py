"""Options of commands that start a run, in addition to its settings."""

from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.option import Group
from orchestrator.faces.cli.options import Config, GivenSettings, ReportedOutput

EnvFile = Annotated[
    list[str] | None,
    typer.Option(
        "--env-file",
        metavar="FILE",
        help="File with one `K=V` or `K` per line, each as for `--env`; repeatable.",
        rich_help_panel=Group.ENVIRONMENT,
    ),
]
Fetch = Annotated[
    bool,
    typer.Option(
        "--fetch",
        help="Run `git fetch` first, so that a base such as `origin/main` is up to date.",
        rich_help_panel=Group.TASK,
    ),
]
WhenBusy = Annotated[
    str | None,
    typer.Option(
        "--when-busy",
        metavar="start|wait|leave",
        help="If another run is live: `start` anyway, `wait`, or `leave` (exit with code 0). "
        "[default: start]",
        rich_help_panel=Group.TASK,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the plan without starting anything.",
        rich_help_panel=Group.COMMON,
    ),
]
Summary = Annotated[
    bool,
    typer.Option(
        "--summary",
        help="Print the result as one line on stdout instead of a table.",
        rich_help_panel=Group.OUTPUT,
    ),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="Run in the background and print the run's id.",
        rich_help_panel=Group.OUTPUT,
    ),
]
AtOnce = Annotated[
    bool | None,
    typer.Option(
        "--parallel/--no-parallel",
        help="`--no-parallel` runs one task at a time, as `--workers 1` does.",
        show_default=False,
        rich_help_panel=Group.TASK,
    ),
]


Pick = Annotated[
    str | None,
    typer.Option(
        "--pick",
        metavar="auto",
        help="`auto`: judge workers, which must have the same task, by checks, and merge the best.",
        rich_help_panel=Group.JUDGING,
    ),
]
Land = Annotated[
    str | None,
    typer.Option(
        "--land",
        metavar="merge|queue",
        help="Merge workers' branches into yours after the run; `queue`: each only if checks pass.",
        rich_help_panel=Group.MERGING,
    ),
]


@dataclass(frozen=True, kw_only=True)
class RunOptions(ReportedOutput):
    """Options of a command that starts a run, apart from the options for settings."""

    summary: Summary = False
    config: Config = None
    dry_run: DryRun = False
    fetch: Fetch = False
    when_busy: WhenBusy = None
    env_file: EnvFile = None
    detach: Detach = False
    pick: str | None = None
    """Whether the best worker is merged. Only `orchestrator parallel` has an option for it."""
    land: str | None = None
    """How the branches are merged. Not an option of `orchestrator run-one`."""

    @property
    def has_next_step(self) -> bool:
        """Whether a merge of the best worker or of the branches follows the run."""
        return self.pick is not None or self.land is not None


@dataclass(frozen=True, kw_only=True)
class SeveralRunOptions(RunOptions):
    """Options of a command that starts a run with one or more tasks."""

    at_once: AtOnce = None
    land: Land = None


@dataclass(frozen=True, kw_only=True)
class ParallelOptions(SeveralRunOptions):
    """Options of `orchestrator parallel`, apart from the options for settings."""

    pick: Pick = None


def check_pick(value: str | None) -> None:
    """Check the value of the option `--pick`.

    Raises:
        ConfigError: The value is not `auto`.
    """
    if value not in (None, "auto"):
        raise ConfigError(
            f"option `--pick` is `{one_line(value or '')}`: must be `auto`", key="option.invalid"
        )


def one_at_a_time(given: GivenSettings, run: SeveralRunOptions) -> GivenSettings:
    """Return the settings for one worker at a time, if the user gave `--no-parallel`.

    Raises:
        ConfigError: `--workers` asks for more.
    """
    if run.at_once is not False:
        return given
    if given.get("workers") not in (None, "1"):
        raise ConfigError(
            "`--no-parallel` and `--workers` cannot be used together",
            key="option.conflict",
            hint="`--no-parallel` is the same as `--workers 1`",
        )
    return {**given, "workers": "1"}
