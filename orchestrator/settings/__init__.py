"""Settings: option > environment `ORCHESTRATOR_*` > configuration file > default."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from orchestrator.config import ParallelConfig, repository_config_files
from orchestrator.errors import ConfigError
from orchestrator.settings.fields import Setting
from orchestrator.settings.merge import merge, problems_of, twice, validate_texts, validate_typed
from orchestrator.settings.schema import json_schema
from orchestrator.settings.sources import (
    CONFIG_VARIABLE,
    Problems,
    from_environment,
    from_file,
    from_options,
)

__all__ = ["json_schema", "load_config"]


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
    path = file or _chosen_file(environ, top)
    file_layer = from_file(path, problems) if path else []
    problems += twice(file_layer) + problems_of(file_layer, validate_typed)
    environment_layer = from_environment(environ, problems)
    problems += problems_of(environment_layer, validate_texts)
    option_layer = from_options(options, environ, problems)
    problems += problems_of(option_layer, validate_texts)
    layers = (file_layer, environment_layer, option_layer)
    if not any(setting.field == ("tasks",) for layer in layers for setting in layer):
        problems.append("no task was given")
    if problems:
        raise _error(problems)
    return _merged(layers)


def _chosen_file(environ: Mapping[str, str], top: Path | None) -> Path | None:
    if environ.get(CONFIG_VARIABLE):
        return Path(environ[CONFIG_VARIABLE])
    files = repository_config_files(top) if top else ()
    return next((path for path in files if path.exists()), None)


def _merged(layers: tuple[list[Setting], ...]) -> ParallelConfig:
    try:
        return merge(layers)
    except ValidationError as error:
        raise _error(
            [found["msg"].removeprefix("Value error, ") for found in error.errors()]
        ) from error


def _error(problems: Problems) -> ConfigError:
    hint = "`orchestrator parallel --help` lists the options and what they take"
    if "no task was given" in problems:
        hint = 'give one as `orchestrator parallel "TASK"`, or several with `--task`'
    if len(problems) == 1:
        return ConfigError(problems[0], hint=hint)
    lines = "".join(f"\n  {problem}" for problem in problems)
    return ConfigError(f"{len(problems)} mistakes in the configuration:{lines}", hint=hint)
