"""Options that commands share, and commands whose options are made from settings and requests.

A setting becomes an option by the `Option` beside its field in `orchestrator.config`, and so does a
field of a request, such as `MergeRequest`. Everything else that a command takes is a parameter of
its function, or a field of a dataclass parameter.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.config.settings.option import Group
from orchestrator.faces.cli.next_step import NextStep
from orchestrator.faces.cli.option_table import OptionRow, read_options

GivenSettings = dict[str, Any]
"""Settings that the user gave as options, by key: text, a tuple of texts, or a boolean."""
Command = Callable[..., None]

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Configuration file to use instead of the repository's own.",
        rich_help_panel=Group.COMMON,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        help="Print nothing on stderr unless something fails.",
        rich_help_panel=Group.OUTPUT,
    ),
]
TryTimeout = Annotated[
    float,
    typer.Option(
        "--try-timeout",
        metavar="SECONDS",
        min=1.0,
        help="Maximum time of the setup commands, and of each check, when they are tried.",
    ),
]
TRY_TIMEOUT = 300.0

Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object instead of a table.", rich_help_panel=Group.COMMON
    ),
]

Events = Annotated[
    bool,
    typer.Option(
        "--events",
        help="Print each event as a line of JSON on stdout instead of a table at the end.",
        rich_help_panel=Group.OUTPUT,
    ),
]
Report = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="FORMAT[=FILE]",
        help="Write a report: junit, markdown, html, sarif, github, gitlab, ...; repeatable.",
        rich_help_panel=Group.OUTPUT,
    ),
]
Artifacts = Annotated[
    Path | None,
    typer.Option(
        "--artifacts",
        metavar="DIR",
        help="Copy files that workers wrote to $ORCHESTRATOR_ARTIFACTS to DIR/worker-N.",
        rich_help_panel=Group.OUTPUT,
    ),
]
JUnit = Annotated[
    list[str] | None,
    typer.Option(
        "--junit",
        metavar="GLOB",
        help="Artifacts that are JUnit files: add their tests to the JUnit report; repeatable.",
        rich_help_panel=Group.OUTPUT,
    ),
]
Timings = Annotated[
    bool,
    typer.Option(
        "--timings",
        help="Also print a timeline, and a table of the time that each step of a worker took.",
        rich_help_panel=Group.OUTPUT,
    ),
]


@dataclass(frozen=True)
class OptionsOf:
    """Marks a parameter that gets the fields of a request that the user gave as options, by name.

    `read_request` of `orchestrator.config.request` makes the request.
    """

    table: str
    """Name of the request's class."""
    only: Collection[str] | None = None
    """Fields that are options of the command. Default: every field with an option."""
    without: Collection[str] = ()
    """Fields that are not options of the command."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Help texts of fields that mean something else in this command, by field."""

    def rows(self) -> list[OptionRow]:
        """Return the options."""
        return _select(read_options(self.table), self.only, self.without, self.texts)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options for the output of a command that executes a run."""

    json: Json = False
    quiet: Quiet = False
    timings: Timings = False
    report: list[str] | None = None
    """Reports to write at the end. Only some commands have an option for them."""
    artifacts: Path | None = None
    """Directory for the workers' artifacts. Only some commands have an option for it."""
    junit: list[str] | None = None
    """Artifacts that are JUnit files. Only some commands have an option for them."""
    summary: bool = False
    """Whether the result is printed as one line. Only some commands have this option."""
    next_step: NextStep | None = None
    """The step that follows the run. Only some commands have such a step."""
    events: bool = False
    """Whether stdout gets the events instead of the result. Only some commands have this option."""

    def __post_init__(self) -> None:
        """Check that the options do not exclude each other."""
        if self.timings and (self.json or self.summary):
            raise ConfigError(
                "`--timings` cannot be used with `--json` or `--summary`",
                key="option.conflict",
                hint="remove `--timings`; the output of `--json` has timings already",
            )


@dataclass(frozen=True, kw_only=True)
class ReportedOutput(OutputOptions):
    """Options for the output of a command that keeps the run's record, which reports need."""

    events: Events = False
    report: Report = None
    artifacts: Artifacts = None
    junit: JUnit = None

    def __post_init__(self) -> None:
        """Check that the options do not exclude each other."""
        super().__post_init__()
        if self.events and (self.json or self.timings or self.summary):
            raise ConfigError(
                "`--events` cannot be used with `--json`, `--timings` or `--summary`",
                key="option.conflict",
                hint="the last event, `run_done`, has the whole result",
            )


def with_settings(
    *,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Command], Command]:
    """Return a decorator that adds options for settings to a command.

    The function gets the given settings as its parameter `settings`. Its other parameters are as
    for `with_options`.

    Args:
        only: Settings that are options of the command. Default: every setting with an option.
        without: Settings that are not options of the command.
        texts: Help texts of settings that mean something else in this command, by setting.
    """
    rows = _select(read_options(), only, without, texts)
    return lambda function: _command(function, rows)


def _select(
    options: Mapping[str, OptionRow],
    only: Collection[str] | None,
    without: Collection[str],
    texts: Mapping[str, str],
) -> list[OptionRow]:
    unknown = {*(only or ()), *without, *texts} - options.keys()
    if unknown:
        raise KeyError(f"no such option: {sorted(unknown)}")
    return [
        replace(row, help=texts.get(key, row.help))
        for key, row in options.items()
        if (only is None or key in only) and key not in without
    ]


def import_later(module: str, name: str) -> Command:
    """Return a function that imports the named function when it is called, and calls it.

    So help texts and completion are fast: they do not import the code that the command executes.
    """

    def call(*arguments: Any) -> None:  # noqa: ANN401
        getattr(import_module(f"orchestrator.faces.cli.{module}"), name)(*arguments)

    return call


@contextmanager
def optional_packages(what: str, extra: str, packages: Collection[str]) -> Iterator[None]:
    """Report that an extra is not installed, if the body imports one of its packages in vain.

    Args:
        what: The part of the program that needs the extra.
        extra: Name of the extra.
        packages: Packages of the extra.

    Raises:
        ConfigError: A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise ConfigError(
            f"{what} is not installed: the package `{error.name}` is missing",
            key="extra.missing",
            hint=f"install the extra `{extra}`: `pip install 'worktree-orchestrator[{extra}]'`",
        ) from error


def with_options(function: Command) -> Command:
    """Make a command of a function whose parameters may be dataclasses with options as fields.

    A field whose type is not `Annotated` is not an option. A parameter that is annotated with
    `OptionsOf` gets options of a request.
    """
    return _command(function, ())


def _command(function: Command, rows: Collection[OptionRow]) -> Command:
    own: dict[str, Parameter] = {}
    parts: dict[str, Any] = {}
    tables: dict[str, Collection[OptionRow]] = {"settings": rows} if rows else {}
    for parameter in inspect.signature(function).parameters.values():
        kinds = get_args(parameter.annotation)
        if is_dataclass(parameter.annotation):
            parts[parameter.name] = parameter.annotation
        elif kinds and isinstance(kinds[-1], OptionsOf):
            tables[parameter.name] = kinds[-1].rows()
        elif parameter.name != "settings":
            own[parameter.name] = parameter.replace(kind=Parameter.KEYWORD_ONLY)

    @wraps(function)
    def command(**given: Any) -> None:  # noqa: ANN401
        made = {
            name: part(**{field.name: given[field.name] for field in _option_fields(part)})
            for name, part in parts.items()
        }
        made |= {name: _collect_options(table, given) for name, table in tables.items()}
        function(**made, **{name: given[name] for name in own})

    of_parts = (
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for part in parts.values()
        for field in _option_fields(part)
    )
    options = [option for table in tables.values() for option in _options(table)]
    # Typer derives the options of a command from these attributes.
    signature = Signature([*options, *own.values(), *of_parts])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {
        **{parameter.name: parameter.annotation for parameter in signature.parameters.values()},
        "return": None,
    }
    return command


def _option_fields(part: Any) -> list[Field[Any]]:  # noqa: ANN401
    return [field for field in fields(part) if get_origin(field.type) is Annotated]


def _options(rows: Collection[OptionRow]) -> Iterable[Parameter]:
    for row in rows:
        yield _parameter(row.key, row, row.flag)
    for row in rows:
        if row.former is not None:
            yield _parameter(_former(row.key), row, row.former, hidden=True)


def _former(key: str) -> str:
    return f"former_{key}"


def _parameter(name: str, row: OptionRow, shown: str, *, hidden: bool = False) -> Parameter:
    kind: Any = bool if row.is_switch else list[str] if row.repeatable else str
    declared = typer.Option(
        f"{shown}/--no-{shown.removeprefix('--')}" if row.negatable else shown,
        metavar=None if row.is_switch else row.metavar,
        help=row.help,
        show_default=False,
        hidden=hidden,
        rich_help_panel=row.group,
    )
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, declared]
    )


def _collect_options(rows: Collection[OptionRow], given: Mapping[str, Any]) -> GivenSettings:
    """Return what was given as options, by the keys of the settings or fields.

    Raises:
        ConfigError: A setting was given by its name and by its former name.
    """
    values_by_key: GivenSettings = {}
    for row in rows:
        key = row.key
        values = [given[name] for name in (key, _former(key)) if given.get(name) is not None]
        if len(values) > 1:
            raise ConfigError(
                f"`{row.former}` is the former name of `{row.flag}`; both were given",
                key="option.conflict",
                hint="remove one of the two options",
            )
        if values:
            value = values[0]
            values_by_key[key] = tuple(value) if isinstance(value, list) else value
    return values_by_key
