"""Settings: option > environment `ORCHESTRATOR_*` > configuration file > default."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from orchestrator.config.fields import RUN_FIELDS, FieldPath, Setting
from orchestrator.config.json_schema import json_schema
from orchestrator.config.merge import merge, problems_of, problems_of_file, validate_texts
from orchestrator.config.run import (
    AUTO,
    MOST_EVER,
    ParallelConfig,
    StageKey,
    repository_config_files,
)
from orchestrator.config.sizing import room, this_machine
from orchestrator.config.sources import (
    CONFIG_VARIABLE,
    Problems,
    from_environment,
    from_file,
    from_options,
)
from orchestrator.config.untrusted_file import NAME_IT, closed_stages, loosened, out_of_bounds
from orchestrator.errors import ConfigError

__all__ = [
    "FileCheck",
    "Settings",
    "check_file",
    "config_file",
    "json_schema",
    "load_config",
    "load_settings",
    "mistakes",
]

_OPTIONS_HINT = "`orchestrator parallel --help` lists the options and what they take"
_VARIABLES_HINT = "`orchestrator config schema` prints the settings and what they take"
_FILE_HINT = "`orchestrator config validate{}` checks the file again when it is put right"
_TASK_HINT = 'give one as `orchestrator parallel "TASK"`, or several with `--task`'
_HINTS = {
    "ports cannot": "leave the ports out, or use `--network open`: without a network there is no "
    "way in",
    "": "a worker and its services share a network: give one of them another port or name",
}
"""What to do about settings that do not go together, by how the mistake begins."""
_MOST_MISTAKES = 50
_TASKS = RUN_FIELDS["tasks"]
_WORKERS = RUN_FIELDS["workers"]
_MAX_WORKERS = RUN_FIELDS["max_workers"]
_SOME_TASK = [Setting(field=_TASKS, value=["a task"], kind="option", name="--task")]
_AGENT_CLI = RUN_FIELDS["agent_cli"]

Layers = tuple[list[Setting], ...]
"""The weakest first: the file, its block for the agent program, the environment, the options."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run would use, and who asked for it."""

    config: ParallelConfig
    layers: Layers

    def given(self, field: FieldPath) -> list[Setting]:
        """List who gave a value, the strongest last."""
        return [setting for layer in self.layers for setting in layer if setting.field == field]


@dataclass(frozen=True, kw_only=True)
class FileCheck:
    """What is wrong with a file, and what only a file that the user named may say."""

    problems: Problems
    named_only: Problems
    closed: tuple[StageKey, ...]
    """What runs without a network, variables or secrets unless the file is named."""


def load_config(
    *,
    options: Mapping[str, object],
    environ: Mapping[str, str],
    top: Path | None,
    file: Path | None,
) -> ParallelConfig:
    """Put a run's configuration together and check all of it.

    Args:
        options: By setting name, as text or a tuple of texts; None was not given. `env` holds
            `NAME=value` or `NAME` (the caller's value), `env_file` paths of files of those.
        environ: The caller's environment.
        top: The repository's top directory, where a configuration file may be.
        file: The configuration file asked for, instead of the repository's.

    Raises:
        ConfigError: Listing every mistake in every layer.
    """
    return load_settings(options=options, environ=environ, top=top, file=file).config


def load_settings(
    *,
    options: Mapping[str, object],
    environ: Mapping[str, str],
    top: Path | None,
    file: Path | None,
    task_needed: bool = True,
) -> Settings:
    """Put a run's configuration together, as `load_config` does, and keep who asked for what.

    Args:
        options: As `load_config` takes them.
        environ: The caller's environment.
        top: The repository's top directory.
        file: The configuration file asked for.
        task_needed: Or there may be none yet.

    Raises:
        ConfigError: Listing every mistake in every layer.
    """
    problems: Problems = []
    path, named = config_file(environ, top, file)
    found_in = None if named else top
    file_layer = _numbered(from_file(path, problems, top=found_in)) if path else []
    environment_problems: Problems = []
    environment_layer = _numbered(from_environment(environ, environment_problems))
    most = _most_workers(file_layer, environment_layer)
    problems += problems_of_file(_bound(file_layer, most))
    hint = _file_hint(path if named else None) if problems else _VARIABLES_HINT
    refused = [] if named else out_of_bounds(file_layer)
    problems += environment_problems
    problems += problems_of(_bound(environment_layer, most), validate_texts)
    in_options: Problems = []
    option_layer = _numbered(from_options(options, environ, in_options))
    in_options += problems_of(_bound(option_layer, most), validate_texts)
    layers = _for_program(file_layer, environment_layer, option_layer)
    hint = NAME_IT.format(path) if refused else _OPTIONS_HINT if in_options else hint
    problems += refused + in_options
    if task_needed and not _any_task(layers):
        problems.append("no task was given")
        hint = _TASK_HINT
    if problems:
        raise mistakes(problems, hint)
    config = _merged(layers) if named else _bounded(layers, path)
    found = Settings(config=config, layers=layers)
    if not _is_auto(found.given(_WORKERS)):
        return found
    jobs = max(len(config.tasks), len(config.models)) if _any_task(layers) else config.max_workers
    return replace(
        found,
        config=config.model_copy(
            update={"workers": min(jobs, _room(config)), "auto_workers": True}
        ),
    )


def _most_workers(*layers: list[Setting]) -> list[Setting]:
    """Return what bounds `workers` in every layer: the strongest `max_workers`, if it is right."""
    given = [one for layer in layers for one in layer if one.field == _MAX_WORKERS]
    text = str(given[-1].value) if given else ""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_EVER:
        return []
    return [Setting(field=_MAX_WORKERS, value=int(text), kind="option", name="max_workers")]


def _bound(layer: list[Setting], most: list[Setting]) -> list[Setting]:
    return layer if any(one.field == _MAX_WORKERS for one in layer) else [*layer, *most]


class _Auto(int):
    """The number of workers until it is known how many there is room for."""


def _numbered(layer: list[Setting]) -> list[Setting]:
    return [
        replace(one, value=_Auto(1)) if (one.field, one.value) == (_WORKERS, AUTO) else one
        for one in layer
    ]


def _is_auto(given: list[Setting]) -> bool:
    return bool(given) and isinstance(given[-1].value, _Auto)


def _room(config: ParallelConfig) -> int:
    """Return how many workers this machine has room for."""
    machine = this_machine()
    return room(config, cpus=machine.cpus, memory=machine.memory)


def check_file(path: Path, *, top: Path | None = None) -> FileCheck:
    """Check a configuration file by itself, whatever the environment says.

    Args:
        path: The file.
        top: The top of the repository in which the file was found, if nobody named the file.
    """
    problems: Problems = []
    found = _numbered(from_file(path, problems, top=top))
    problems += problems_of_file(found)
    named_only = out_of_bounds(found)
    closed = closed_stages(found, ())
    if problems:
        return FileCheck(problems=problems, named_only=named_only, closed=closed)
    for program in dict.fromkeys((None, *(setting.program for setting in found))):
        general, own = _split(found, program)
        try:
            named_only += _loosened((general, own))
        except ConfigError as error:
            problems.append(f"{path}: {error.message}")
    named_only = list(dict.fromkeys(named_only))
    return FileCheck(problems=problems, named_only=named_only, closed=closed)


def config_file(
    environ: Mapping[str, str], top: Path | None, file: Path | None
) -> tuple[Path | None, bool]:
    """Return the configuration file, if any, and whether the user named it.

    Args:
        environ: The caller's environment.
        top: The repository's top directory.
        file: The file asked for by an option.
    """
    if file is not None:
        return file, True
    if environ.get(CONFIG_VARIABLE):
        return Path(environ[CONFIG_VARIABLE]), True
    files = repository_config_files(top) if top else ()
    return next((path for path in files if os.path.lexists(path)), None), False


def _for_program(file: list[Setting], environment: list[Setting], options: list[Setting]) -> Layers:
    """Leave out what the file has for other agent programs than the one that is chosen."""
    chosen = str(ParallelConfig.model_fields["agent_cli"].default)
    for setting in (*_split(file, None)[0], *environment, *options):
        if setting.field == _AGENT_CLI:
            chosen = str(setting.value)
    return *_split(file, chosen), environment, options


def _split(file: list[Setting], program: str | None) -> tuple[list[Setting], list[Setting]]:
    general = [setting for setting in file if setting.program is None]
    if program is None:
        return general, []
    return general, [setting for setting in file if setting.program == program]


def _bounded(layers: Layers, path: Path | None) -> ParallelConfig:
    """Put the layers together when the file came with the repository."""
    problems = _loosened(layers)
    if problems:
        raise mistakes(problems, NAME_IT.format(path))
    general, of_program, *stronger = layers
    closed = closed_stages([*general, *of_program], [one for layer in stronger for one in layer])
    return _merged(layers).model_copy(update={"closed_stages": closed})


def _loosened(layers: Layers) -> Problems:
    general, of_program, *stronger = layers
    tasks = [setting for setting in general if setting.field == _TASKS]
    return loosened([*general, *of_program], _merged(layers), _merged((tasks, *stronger)))


def _any_task(layers: Layers) -> bool:
    return any(setting.field == _TASKS for layer in layers for setting in layer)


def _file_hint(named: Path | None) -> str:
    return _FILE_HINT.format(f" {shlex.quote(str(named))}" if named else "")


def _merged(layers: Layers) -> ParallelConfig:
    try:
        return merge(layers if _any_task(layers) else (_SOME_TASK, *layers))
    except ValidationError as error:
        problems = [found["msg"].removeprefix("Value error, ") for found in error.errors()]
        hint = next(_HINTS[start] for start in _HINTS if problems[0].startswith(start))
        raise mistakes(problems, hint) from error


def mistakes(problems: Problems, hint: str, what: str = "configuration") -> ConfigError:
    """Make one error of all that is wrong."""
    if len(problems) == 1:
        return ConfigError(problems[0], hint=hint)
    more = [f"and {len(problems) - _MOST_MISTAKES} more"] if len(problems) > _MOST_MISTAKES else []
    lines = "".join(f"\n  {problem}" for problem in [*problems[:_MOST_MISTAKES], *more])
    return ConfigError(f"{len(problems)} mistakes in the {what}:{lines}", hint=hint)
