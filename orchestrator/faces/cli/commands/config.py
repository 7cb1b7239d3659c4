"""`orchestrator config`: show the effective configuration, and validate files."""

import os
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError, OrchestratorError, mistakes
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.loading.explain import HIDDEN, Described, describe
from orchestrator.config.loading.loading import (
    check_file,
    config_file,
    json_schema,
    load_config,
    load_settings,
)
from orchestrator.config.loading.untrusted_file import NAME_IT
from orchestrator.faces.cli import options
from orchestrator.faces.cli.output.formats import size, table
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.repository.repository import Repository, find_top
from orchestrator.worker.workspace.untracked import allow_list

_NOTHING = "-"
_LONGEST = 60
_try_commands = options.import_later("trial_run", "try_commands")
_KEYS_HINT = "run `orchestrator config schema` for the keys and their values"

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Print and check the configuration."
)


@app.command("show")
@options.with_settings(only=("agent_cli", "preset"))
def show_settings(
    settings: options.GivenSettings, config: options.Config = None, as_json: options.Json = False
) -> None:
    """Print every setting that a run would use, and its source."""
    top = _top()
    loaded = load_settings(
        options=settings, environ=os.environ, top=top, file=config, task_needed=False
    )
    path, named = config_file(os.environ, top, config)
    described = list(describe(loaded))
    if as_json:
        file = None if path is None else {"path": str(path), "named": named}
        show_json(dumps({"file": file, "settings": [asdict(row) for row in described]}, indent=2))
        return
    show(table([("SETTING", "VALUE", "FROM"), *(_row(setting) for setting in described)]))


@app.command()
def validate(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="File to check. [default: the file that a run would use]"
        ),
    ] = None,
    tries: Annotated[
        bool,
        typer.Option("--try", help="Run the file's setup and checks once, on the last commit."),
    ] = False,
    try_timeout: options.TryTimeout = options.TRY_TIMEOUT,
) -> None:
    """Check a configuration file and print every mistake.

    With `--try`, also run its commands as a worker would, and exit with 1 if one of them fails.
    """
    top = _top()
    path, named = config_file(os.environ, top, file)
    if path is None:
        raise ConfigError(
            "there is no configuration file: the defaults apply",
            key="configuration.missing",
            hint="`orchestrator init` writes a file that fits the project",
        )
    check = check_file(path, top=None if named else top)
    refused = [] if named else check.named_only
    if check.problems or refused:
        hint = NAME_IT.format(path) if refused else _KEYS_HINT
        raise mistakes([*check.problems, *refused], hint, key="configuration.invalid")
    show("ok")
    if check.named_only:
        tell("these settings are accepted only because you named the file:")
        for line in check.named_only:
            tell(f"  {line}")
    if check.closed:
        keys = ", ".join(f"`{key}`" for key in check.closed)
        closed = (
            "run without network, variables and secrets unless you name the file with `--config`"
        )
        tell(f"commands of {keys} {closed}")
    loaded = load_config(
        options={"tasks": ("-",)}, environ=os.environ, top=top, file=path if named else None
    )
    if tries:
        _try_commands(loaded, try_timeout)
    elif loaded.project.setup or loaded.project.checks:
        tell("its commands were not run: `config validate --try` runs them once")


@app.command()
def allow() -> None:
    """Let the repository's `.worktreeinclude` choose files that workers get copies of.

    Its present content is allowed, until it changes. The command prints the files it chooses now.
    """
    copies = allow_list(Repository(Path.cwd()))
    for path in copies.files:
        show(one_line(path))
    for notice in copies.notices:
        tell(notice)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors and other tools."""
    show_json(dumps(json_schema(), indent=2))


def _top() -> Path | None:
    try:
        return find_top(Path.cwd())
    except OrchestratorError:
        return None


def _row(setting: Described) -> tuple[str, str, str]:
    places = ", ".join(
        one_line(place.removeprefix(f"{Path.cwd()}/"), limit=_LONGEST) for place in setting.places
    )
    match setting.source:
        case "default":
            source = "default"
        case "file":
            source = places
        case kind:
            source = f"{kind} {places}"
    return setting.key, one_line(_text(setting), limit=_LONGEST), source


def _text(setting: Described) -> str:
    value = setting.value
    if value in (None, [], {}):
        return _NOTHING
    if setting.in_bytes:
        return size(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict) and all(item == HIDDEN for item in value.values()):
        return ", ".join(value)
    if isinstance(value, list) and all(isinstance(item, (str, int)) for item in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else dumps(value, ensure_ascii=False)
