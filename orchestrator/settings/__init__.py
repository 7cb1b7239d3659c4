"""Settings: option > environment `ORCHESTRATOR_*` > configuration file > default."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from orchestrator.config import ParallelConfig, repository_config_files
from orchestrator.errors import ConfigError
from orchestrator.settings.fields import Setting
from orchestrator.settings.guest import NAME_IT, loosened, out_of_bounds
from orchestrator.settings.merge import merge, problems_of, twice, validate_texts, validate_typed
from orchestrator.settings.schema import json_schema
from orchestrator.settings.sources import (
    CONFIG_VARIABLE,
    Problems,
    from_environment,
    from_file,
    from_options,
)

__all__ = ["config_file", "json_schema", "load_config"]

_OPTIONS_HINT = "`orchestrator parallel --help` lists the options and what they take"
_FILE_HINT = "docs/reference/configuration.md lists the keys, the variables and what they take"
_TASK_HINT = 'give one as `orchestrator parallel "TASK"`, or several with `--task`'
_PORTS_HINT = "leave the ports out, or use `--network open`"

_Layers = tuple[list[Setting], list[Setting], list[Setting]]


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
    problems: Problems = []
    path, named = config_file(environ, top, file)
    file_layer = from_file(path, problems) if path else []
    problems += twice(file_layer) + problems_of(file_layer, validate_typed)
    refused = [] if named else out_of_bounds(file_layer)
    environment_layer = from_environment(environ, problems)
    problems += problems_of(environment_layer, validate_texts)
    in_options: Problems = []
    option_layer = from_options(options, environ, in_options)
    in_options += problems_of(option_layer, validate_texts)
    layers = (file_layer, environment_layer, option_layer)
    hint = NAME_IT.format(path) if refused else _OPTIONS_HINT if in_options else _FILE_HINT
    problems += refused + in_options
    if not any(setting.field == ("tasks",) for layer in layers for setting in layer):
        problems.append("no task was given")
        hint = _TASK_HINT
    if problems:
        raise _error(problems, hint)
    return _merged(layers) if named else _bounded(layers, path)


def config_file(
    environ: Mapping[str, str], top: Path | None, file: Path | None
) -> tuple[Path | None, bool]:
    """Give the configuration file, if any, and whether the user named it.

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
    return next((path for path in files if path.exists()), None), False


def _bounded(layers: _Layers, path: Path | None) -> ParallelConfig:
    """Put the layers together when the file came with the repository."""
    config = _merged(layers)
    tasks = [setting for setting in layers[0] if setting.field == ("tasks",)]
    without = _merged((tasks, *layers[1:]))
    problems = loosened(layers[0], config, without)
    if problems:
        raise _error(problems, NAME_IT.format(path))
    return config


def _merged(layers: _Layers) -> ParallelConfig:
    try:
        return merge(layers)
    except ValidationError as error:
        problems = [found["msg"].removeprefix("Value error, ") for found in error.errors()]
        # The models know of no other two settings that do not go together.
        raise _error(problems, _PORTS_HINT) from error


def _error(problems: Problems, hint: str) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(problems[0], hint=hint)
    lines = "".join(f"\n  {problem}" for problem in problems)
    return ConfigError(f"{len(problems)} mistakes in the configuration:{lines}", hint=hint)
